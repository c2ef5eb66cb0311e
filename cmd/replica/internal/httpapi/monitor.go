package httpapi

import "github.com/leaseholddb/leasehold/router"

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
