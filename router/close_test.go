package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// RO-15: closing hands off as many at once as it may, and no more.
func TestCloseInLanes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const lanes = 3
		a := w.router("a", func(o *router.Options) { o.CloseConcurrency = lanes })
		for n := range 10 {
			mustAdd(t, a.open(key(t, n)), "one")
		}
		letGo := w.copies.hold()
		closed := make(chan error, 1)
		go func() { closed <- a.Close(context.Background()) }()
		synctest.Wait()
		if n := w.copies.running(); n != lanes {
			t.Errorf("%d final copies at once, want %d", n, lanes)
		}
		letGo()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// RO-15: a forget that hangs in the copy store keeps Close no longer than a drain may
// take, and is reported.
func TestCloseGivesUpOnAForget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sick := &sickFor{Store: w.copies, prefix: key(t, 1).String() + "/"}
		a := w.router("a", func(o *router.Options) { o.Copies, o.CopyTimeout = sick, time.Hour })
		h, other := a.open(key(t, 1)), a.open(key(t, 2))
		mustAdd(t, other, "one")
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		sick.how.Store(&hang)
		forgotten := make(chan error, 1)
		go func() { _, err := h.Forget(context.Background()); forgotten <- err }()
		synctest.Wait()
		began := time.Now()
		wantCode(t, a.Close(t.Context()), coord.CodeDraining)
		if took := time.Since(began); took > router.DefaultDrainTimeout+3*time.Second {
			t.Errorf("closing took %v", took)
		}
		wantHeld(t, w.router("b").open(key(t, 2)), "one")
		wantCode(t, <-forgotten, coord.CodeCopyStoreUnavailable)
	})
}

// RO-16: an observer that falls behind loses events, hears how many, and no tenant
// waits for it.
func TestSlowObserverHearsWhatItMissed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const tenants = 20
		block := make(chan struct{})
		delivered, dropped := 0, 0
		a := w.router("a", func(o *router.Options) {
			o.Observer = func(e router.Event) {
				<-block
				delivered++
				dropped += e.Dropped
			}
		})
		for n := range tenants {
			a.open(key(t, n))
		}
		time.Sleep(tenants * 60 * time.Second) // many renewals
		if n := w.leases.count("renew"); n < router.EventBacklog {
			t.Fatalf("only %d renewals: the test shows nothing", n)
		}
		for n := range tenants {
			mustAdd(t, a.HandleOf(key(t, n)), fmt.Sprint(n))
		}
		close(block)
		synctest.Wait()
		h := a.HandleOf(key(t, 0)) // its event carries the count
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := 2*tenants + w.leases.count("renew") + 1
		if dropped == 0 || delivered+dropped != want {
			t.Errorf("%d events delivered and %d said to be missing, of %d", delivered, dropped, want)
		}
	})
}
