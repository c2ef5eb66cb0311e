package router_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// batchedLeases renew many at once, in a way of the test's own. They count the tenures
// that were renewed so and those that were renewed one by one.
type batchedLeases struct {
	*switchedLeases
	many             func(ctx context.Context, tenures []coord.Tenure) []coord.Renewal // nil for as it should be
	together, single atomic.Int32
}

func (b *batchedLeases) Renew(ctx context.Context, t coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	b.single.Add(1)
	return b.switchedLeases.Renew(ctx, t, ttl)
}

func (b *batchedLeases) RenewAll(ctx context.Context, tenures []coord.Tenure, ttl time.Duration) []coord.Renewal {
	if b.many != nil {
		return b.many(ctx, tenures)
	}
	b.together.Add(int32(len(tenures)))
	all := make([]coord.Renewal, len(tenures))
	for i, t := range tenures {
		all[i].Grant, all[i].Err = b.switchedLeases.Renew(ctx, t, ttl)
	}
	return all
}

func (w *world) batched(many func(ctx context.Context, tenures []coord.Tenure) []coord.Renewal) (*batchedLeases, func(*router.Options)) {
	b := &batchedLeases{switchedLeases: w.leases, many: many}
	return b, func(o *router.Options) { o.Leases = b }
}

// lasts checks for ten TTLs that no tenant comes near its fence.
func lasts(t *testing.T, handles []*router.Handle, least time.Duration) {
	t.Helper()
	for range 100 {
		time.Sleep(ttl / 10)
		for _, h := range handles {
			if h.State() != router.StateServing || h.Remaining() < least {
				t.Fatalf("%s is %v, %v from its fence", h.Key(), h.State(), h.Remaining())
			}
		}
	}
}

func (n *node) openMany(count int) (handles []*router.Handle) {
	n.t.Helper()
	for i := range count {
		handles = append(handles, n.open(key(n.t, i)))
	}
	return handles
}

// RO-2: while all is well no tenant's own loop has anything to do.
func TestRenewalsTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		leases, batched := w.batched(nil)
		n := w.router("a", batched)
		const tenants = 20
		handles := n.openMany(tenants)
		time.Sleep(ttl) // the first renewal of each
		leases.single.Store(0)
		leases.together.Store(0)
		lasts(t, handles, ttl-margin-ttl/3-time.Second)
		if alone, together := leases.single.Load(), leases.together.Load(); alone != 0 || together < 25*tenants || together > 31*tenants {
			t.Errorf("%d renewals together and %d alone of %d tenants in ten TTLs of three each", together, alone, tenants)
		}
	})
}

// A store that renews many at once badly, or not at all, costs nobody the lease: the loops
// renew what was not renewed in time.
func TestRenewalsTogetherFail(t *testing.T) {
	silent := func(ctx context.Context, tenures []coord.Tenure) []coord.Renewal {
		<-ctx.Done()
		return make([]coord.Renewal, len(tenures))
	}
	failing := func(_ context.Context, tenures []coord.Tenure) []coord.Renewal {
		all := make([]coord.Renewal, len(tenures))
		for i := range all {
			all[i].Err = &coord.Error{Code: coord.CodeLeaseStoreUnavailable}
		}
		return all
	}
	refusing := func(_ context.Context, tenures []coord.Tenure) []coord.Renewal {
		all := make([]coord.Renewal, len(tenures))
		for i := range all {
			all[i].Err = &coord.Error{Code: coord.CodeLeaseLost}
		}
		return all
	}
	stuck := make(chan struct{})
	for what, many := range map[string]func(context.Context, []coord.Tenure) []coord.Renewal{
		"silent": silent, "failing": failing, "refusing": refusing,
		"short": func(context.Context, []coord.Tenure) []coord.Renewal { return nil },
		"stuck": func(_ context.Context, tenures []coord.Tenure) []coord.Renewal {
			<-stuck // beyond its context
			return make([]coord.Renewal, len(tenures))
		},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				stuck = make(chan struct{})
				defer close(stuck)
				leases, batched := w.batched(many)
				n := w.router("a", batched)
				lasts(t, n.openMany(5), time.Second)
				late := w.router("b", batched, func(o *router.Options) { o.RenewEvery = ttl - margin - time.Second })
				lasts(t, []*router.Handle{late.open(key(t, 9))}, 100*time.Millisecond)
				if leases.single.Load() == 0 {
					t.Error("nothing was renewed: the test shows nothing")
				}
			})
		})
	}
}

// A tenure that is over ends although its renewals come together with others', and the
// others go on.
func TestLostAmongMany(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, batched := w.batched(nil)
		n := w.router("a", batched)
		handles := n.openMany(3)
		if err := w.leases.Store.Release(t.Context(), coord.Tenure{Key: handles[1].Key(), Owner: "a", Epoch: handles[1].Epoch()}); err != nil {
			t.Fatal(err)
		}
		<-handles[1].Done()
		synctest.Wait()
		if err := handles[1].Err(); !errors.Is(err, coord.CodeFenced) {
			t.Errorf("ended with %v", err)
		}
		lasts(t, []*router.Handle{handles[0], handles[2]}, time.Second)
	})
}
