package httpapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// A Probe finds out whether something works that a replica cannot serve without.
type Probe struct {
	Name string // in the answer of /readyz
	// Check is called again and again, one call at a time, with a context that ends
	// after [Options.ProbeGrace]. One that does not return counts as a failure.
	Check func(ctx context.Context) error
}

// probesPerGrace is how often a probe is tried before its failure counts.
const probesPerGrace = 4

// health is what the probes of a server found.
type health struct {
	grace  time.Duration
	log    *zap.Logger
	probes []*probed
}

type probed struct {
	Probe
	worked atomic.Pointer[time.Time] // when Check succeeded last
}

func newHealth(probes []Probe, grace time.Duration, log *zap.Logger) *health {
	h := &health{grace: grace, log: log}
	now := time.Now()
	for _, p := range probes {
		one := &probed{Probe: p}
		one.worked.Store(&now)
		h.probes = append(h.probes, one)
	}
	return h
}

// broken names what has not worked for longer than the grace, "" if nothing.
func (h *health) broken() string {
	for _, p := range h.probes {
		if time.Since(*p.worked.Load()) > h.grace {
			return p.Name
		}
	}
	return ""
}

// WatchHealth tries [Options.Probes] until ctx ends. From a grace after it has ended,
// or if it was never called, /readyz answers 503 if there are any.
func (s *Server) WatchHealth(ctx context.Context) {
	var loops sync.WaitGroup
	for _, p := range s.health.probes {
		loops.Go(func() { s.health.watch(ctx, p) })
	}
	loops.Wait()
}

func (h *health) watch(ctx context.Context, p *probed) {
	failing := false
	tick := time.NewTicker(h.grace / probesPerGrace)
	defer tick.Stop()
	for {
		err := h.try(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			now := time.Now()
			p.worked.Store(&now)
		}
		switch {
		case err != nil && !failing:
			h.log.Warn("a probe fails; readiness goes if that lasts", zap.String("probe", p.Name), zap.Duration("grace", h.grace), zap.Error(err))
		case err == nil && failing:
			h.log.Info("the probe succeeds again", zap.String("probe", p.Name))
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// try returns when ctx ends even if the check does not: a disk that is gone can
// hold a call for ever, and a replica that stops must not wait for it.
func (h *health) try(ctx context.Context, p *probed) error {
	bounded, cancel := context.WithTimeout(ctx, h.grace)
	result := make(chan error, 1)
	go func() {
		defer cancel()
		result <- p.Check(bounded)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// livez says that the process answers, until its end.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") }

// readyz says whether new requests should come here.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	why := "draining"
	if !s.draining.Load() {
		why = s.health.broken()
	}
	if why == "" {
		text(w, http.StatusOK, "ready\n")
		return
	}
	w.Header().Set("Retry-After", retryAfter)
	text(w, http.StatusServiceUnavailable, why+"\n")
}

// ready is readyz as a number, for the metrics.
func (s *Server) ready() float64 {
	if s.draining.Load() || s.health.broken() != "" {
		return 0
	}
	return 1
}
