package httpapi_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/router"
)

// awaitReady waits until /readyz has the status, with liveness never gone.
func (n *node) awaitReady(status int, why string) {
	n.fleet.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		n.must(200, "GET", "/livez", "")
		got := n.do("GET", "/readyz", "")
		if got.status == status {
			if !strings.Contains(got.body, why) || (status == 503) != (got.header.Get("Retry-After") != "") {
				n.fleet.t.Errorf("readiness: %s", got)
			}
			return
		}
		if time.Now().After(deadline) {
			n.fleet.t.Fatalf("readiness stays %s, want %d %s", got, status, why)
		}
	}
}

// RE-5: what a replica cannot do without takes readiness away once it has failed for
// the grace, be it by an error or by never answering, and gives it back; liveness stays.
func TestReadinessFollowsProbes(t *testing.T) {
	const grace = time.Second
	var fails atomic.Bool
	var asked atomic.Int32
	hangs, letGo := make(chan struct{}), make(chan struct{})
	var hanging atomic.Bool
	a := newFleet(t).node("a", func(o *httpapi.Options, _ *router.Options) {
		o.ProbeGrace = grace
		o.Probes = []httpapi.Probe{
			{Name: "one is gone", Check: func(context.Context) error {
				asked.Add(1)
				if fails.Load() {
					return errors.New("gone")
				}
				return nil
			}},
			{Name: "two is gone", Check: func(context.Context) error {
				select {
				case <-hangs:
					hanging.Store(true)
					<-letGo
				default:
				}
				return nil
			}},
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		a.api.WatchHealth(ctx)
	}()
	before := asked.Load()
	a.awaitReady(200, "ready")
	fails.Store(true)
	began := time.Now()
	a.awaitReady(503, "one is gone")
	if took := time.Since(began); took < grace/2 {
		t.Errorf("readiness was gone after %v, within the grace", took)
	}
	a.must(201, "POST", tenant+"/events", event("still served"))
	if got := a.must(200, "GET", "/metrics", ""); !strings.Contains(got.body, "leasehold_ready 0") {
		t.Error("the metric says ready")
	}
	fails.Store(false)
	a.awaitReady(200, "ready")
	close(hangs)
	a.awaitReady(503, "two is gone")
	cancel()
	<-watched // although the check is still there
	close(letGo)
	if asked.Load() == before || !hanging.Load() {
		t.Error("the probes were not tried")
	}
}
