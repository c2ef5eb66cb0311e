package httpapi

import (
	"context"

	"github.com/leaseholddb/leasehold/router"
)

// A Monitor turns a router's events into metrics and event streams. It exists
// before the router, whose observer it is, and serves one router.
type Monitor struct {
	metrics *metrics
	hub     *hub
}

// NewMonitor returns a monitor for a replica of the given version.
func NewMonitor(version string) *Monitor {
	m := newMetrics(version)
	return &Monitor{metrics: m, hub: newHub(m.streamDropped)}
}

// Observe is for [router.Options]. It never blocks: a stream that cannot keep up
// is cut off.
func (m *Monitor) Observe(e router.Event) {
	m.metrics.observe(e)
	m.hub.publish(e)
}

// HandshakeFailed counts a connection that ended before its TLS handshake had
// succeeded.
func (m *Monitor) HandshakeFailed() { m.metrics.handshakes.Inc() }

// measured notes how far the fence was when work that may write was acknowledged.
func (s *Server) measured(op operation, do work) work {
	if op.reads || op.transfers {
		return do
	}
	return func(ctx context.Context, h *router.Handle) (reply, error) {
		answer, err := do(ctx, h)
		if err == nil {
			s.monitor.metrics.acknowledged(h.Remaining())
		}
		return answer, err
	}
}
