package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// keepsWhatItHas makes a router that honours no request.
func keepsWhatItHas(o *router.Options) { o.MinTenure = -1 }

// A wait is a call of OpenWait.
type wait struct {
	cancel context.CancelFunc
	result chan waitResult
}

type waitResult struct {
	h   *router.Handle
	err error
}

func (n *node) wait(k coord.Key) *wait {
	ctx, cancel := context.WithCancel(context.Background())
	w := &wait{cancel, make(chan waitResult, 1)}
	go func() {
		defer cancel()
		h, err := n.OpenWait(ctx, k)
		w.result <- waitResult{h, err}
	}()
	synctest.Wait()
	return w
}

// handle is what the wait came to.
func (w *wait) handle(t *testing.T) *router.Handle {
	t.Helper()
	got := <-w.result
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.h
}

func (w *world) wantAskers(k coord.Key, want ...string) {
	w.t.Helper()
	standing, err := w.leases.Wants(w.t.Context(), k)
	if err != nil {
		w.t.Fatal(err)
	}
	askers := []string{}
	for _, a := range standing {
		askers = append(askers, a.Asker)
	}
	if !slices.Equal(askers, append([]string{}, want...)) {
		w.t.Errorf("%v ask for the tenant, want %v", askers, want)
	}
}

// RO-18: who waits is woken by the release, has what was acknowledged, and asks no more.
func TestOpenWaitIsWokenByTheRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a", keepsWhatItHas), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		waiter := b.wait(k)
		w.wantAskers(k, "b")
		time.Sleep(time.Hour) // an owner that keeps what it has is not moved
		mustAdd(t, h, "2")
		began := time.Now()
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := waiter.handle(t)
		if got.Epoch() != 2 || time.Since(began) > 0 {
			t.Errorf("epoch %d after %v, want 2 at once", got.Epoch(), time.Since(began))
		}
		wantHeld(t, got, "1", "2")
		synctest.Wait()
		w.wantAskers(k)
	})
}

// RO-18: and by the end of the lease of an owner that is gone.
func TestOpenWaitIsWokenByTheExpiry(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		waiter := b.wait(k)
		w.leases.fail("renew", errSwitchedOff)
		began := time.Now()
		got := waiter.handle(t)
		if took := time.Since(began); got.Epoch() != 2 || took != ttl {
			t.Errorf("epoch %d after %v, want 2 after %v", got.Epoch(), took, ttl)
		}
		wantHeld(t, got, "1")
		w.leases.fail("renew", nil)
	})
}

// RO-18: the owner honours a request once its tenure is old enough, through all its
// writes, and no earlier.
func TestRequestIsHonoured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		time.Sleep(time.Second)
		waiter := b.wait(k)
		time.Sleep(router.DefaultMinTenure - 2*time.Second)
		mustAdd(t, h, "2") // still here
		got := waiter.handle(t)
		if age := time.Since(w.epochBegan(k, 1)); age != router.DefaultMinTenure {
			t.Errorf("handed off at the age of %v, want %v", age, router.DefaultMinTenure)
		}
		wantHeld(t, got, "1", "2")
		a.wantKinds("acquired", "restored", "snapshot(1)", "released(true)")
	})
}

// epochBegan is when the epoch was granted.
func (w *world) epochBegan(k coord.Key, epoch coord.Epoch) time.Time {
	w.t.Helper()
	trail, err := w.leases.Audit(w.t.Context(), k)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range trail {
		if e.Op == coord.AuditAcquire && e.Epoch == epoch {
			return e.At
		}
	}
	w.t.Fatalf("epoch %d was never granted", epoch)
	return time.Time{}
}

// RO-18: two replicas that want the same tenant for ever do not thrash.
func TestNoPingPong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const long = 10 * time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		k := key(t, 1)
		var owners sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			n := w.router(id)
			owners.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					h, err := n.OpenWait(ctx, k)
					if err != nil {
						continue
					}
					mustAdd(t, h, fmt.Sprintf("%s-%d", id, i))
					select {
					case <-h.Done():
					case <-ctx.Done():
					}
				}
			})
		}
		owners.Wait()
		record, _, err := w.leases.Read(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if least, most := coord.Epoch(50), coord.Epoch(long/router.DefaultMinTenure)+1; record.Epoch < least || record.Epoch > most {
			t.Errorf("%d tenures in %v, want %d to %d", record.Epoch, long, least, most)
		}
	})
}

// RO-18: of many that wait each has the tenant in its turn, at an epoch of its own.
func TestManyWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const many = 16
		k := key(t, 1)
		var mu sync.Mutex
		epochs := map[coord.Epoch]string{}
		var all sync.WaitGroup
		for i := range many {
			n := w.router(fmt.Sprintf("r%02d", i))
			all.Go(func() {
				h, err := n.OpenWait(t.Context(), k)
				if err != nil {
					t.Error(err)
					return
				}
				mustAdd(t, h, n.ReplicaID())
				mu.Lock()
				epochs[h.Epoch()] = n.ReplicaID()
				mu.Unlock()
			})
		}
		all.Wait()
		if len(epochs) != many {
			t.Errorf("%d of %d had the tenant: %v", len(epochs), many, epochs)
		}
		if got := held(t, w.router("last").wait(k).handle(t)); len(got) != many {
			t.Errorf("the ledger holds %v", got)
		}
	})
}

// Trap 1: a waiter whose new lease is gone before it serves gets another one, never the
// grant that it lost.
func TestWaiterThatLosesItsLeaseGetsAnotherEpoch(t *testing.T) {
	for name, lapse := range map[string]error{
		"refused": &coord.Error{Code: coord.CodeLeaseLost},
		"expired": errSwitchedOff,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b, k := w.router("a", keepsWhatItHas), w.router("b"), key(t, 1)
				h := a.open(k)
				mustAdd(t, h, "1")
				if _, err := h.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				waiter := b.wait(k)
				letGo := make(chan func(), 1)
				var once sync.Once
				w.leases.before("acquire", func() { once.Do(func() { letGo <- w.copies.hold() }) }) // the claim
				if err := h.Handoff(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				w.leases.fail("renew", lapse)
				time.Sleep(2 * ttl)
				w.leases.fail("renew", nil)
				(<-letGo)()
				got := waiter.handle(t)
				if err := got.Check(); err != nil || got.Epoch() < 3 {
					t.Errorf("epoch %d: %v", got.Epoch(), err)
				}
				record, _, err := w.leases.Read(t.Context(), k)
				if err != nil || !record.Held || record.Epoch != got.Epoch() {
					t.Errorf("serves epoch %d, the store says %+v, %v", got.Epoch(), record, err)
				}
				wantHeld(t, got, "1")
			})
		})
	}
}

// A wait ends with its context or its router, and leaves no request.
func TestWaitEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a", keepsWhatItHas), w.router("b"), key(t, 1)
		a.open(k)
		waiter := b.wait(k)
		waiter.cancel()
		if got := <-waiter.result; !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %v", got.err)
		}
		w.wantAskers(k)
		waiter = b.wait(k)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, (<-waiter.result).err, coord.CodeRouterClosed)
		w.wantAskers(k)
	})
}

// What waiting cannot cure is reported at once.
func TestWaitFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b := w.router("b", func(o *router.Options) { o.MaxTenants = 1 })
		b.open(key(t, 2))
		wantCode(t, (<-b.wait(key(t, 1)).result).err, coord.CodeAtCapacity)
		wantCode(t, (<-b.wait(coord.Key{}).result).err, coord.CodeIDInvalid)
		blind := w.router("c", func(o *router.Options) { o.Leases = struct{ coord.LeaseStore }{w.leases} })
		wantCode(t, (<-blind.wait(key(t, 1)).result).err, coord.CodeOptionsInvalid)
	})
}

// A replica can wait for what it is giving up itself.
func TestWaitForOwnHandoff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, k := w.router("a"), key(t, 1)
		h := a.open(k)
		busy := startBusy(t, h)
		handoff := make(chan error, 1)
		go func() { handoff <- h.Handoff(context.Background()) }()
		synctest.Wait()
		waiter := a.wait(k)
		if err := busy.end(); err != nil {
			t.Fatal(err)
		}
		if err := <-handoff; err != nil {
			t.Fatal(err)
		}
		got := waiter.handle(t)
		if got.Epoch() != 2 {
			t.Errorf("epoch %d, want 2", got.Epoch())
		}
		wantHeld(t, got, "busy")
	})
}

// An opening leaves a tenant that has come free to who waits for it, but not for long.
func TestOpeningYieldsToWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c, k := w.router("a", keepsWhatItHas), w.router("b"), w.router("c"), key(t, 1)
		h := a.open(k)
		waiter := b.wait(k)
		w.leases.before("acquire", func() { time.Sleep(100 * time.Millisecond) }) // c would be as fast as b
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*node{a, c} {
			_, err := n.Open(t.Context(), k)
			var held *coord.LeaseHeldError
			if !errors.As(err, &held) || held.Record.Owner != "b" {
				t.Errorf("%s: %v, want held by b", n.ReplicaID(), err)
			}
		}
		if err := waiter.handle(t).Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.leases.before("", nil)

		// The request of a replica that does nothing stands for a second only.
		withdraw, err := w.leases.Want(t.Context(), k, "dead")
		if err != nil {
			t.Fatal(err)
		}
		defer withdraw(t.Context())
		synctest.Wait()
		began := time.Now()
		c.open(k)
		if took := time.Since(began); took == 0 || took > 2*time.Second {
			t.Errorf("opened after %v, want about a second", took)
		}
	})
}

// A request that was withdrawn before its time moves nothing, and one that could not be
// honoured is tried again.
func TestRequestIsLookedAtAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		waiter := b.wait(k)
		time.Sleep(router.DefaultMinTenure / 2)
		waiter.cancel()
		<-waiter.result
		time.Sleep(time.Hour)
		mustAdd(t, h, "2")

		w.copies.fail(errSwitchedOff)
		waiter = b.wait(k)
		time.Sleep(time.Minute + time.Second)
		mustAdd(t, h, "3")
		w.copies.fail(nil)
		wantHeld(t, waiter.handle(t), "1", "2", "3")
	})
}
