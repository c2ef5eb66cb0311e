package router_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// RO-1: concurrent opens share one acquisition and one handle.
func TestOpensShareOneAcquisition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		var mu sync.Mutex
		handles := make(map[*router.Handle]int)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				h, err := a.Open(t.Context(), key(t, 1))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				handles[h]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(handles) != 1 || w.leases.count("acquire") != 1 {
			t.Errorf("%d handles, %d acquisitions, want one of each", len(handles), w.leases.count("acquire"))
		}
		h := a.HandleOf(key(t, 1))
		if h == nil || h.Epoch() != 1 || h.Revision() == 0 || h.RestoredFrom() != nil || h.Key() != key(t, 1) || a.OpenCount() != 1 {
			t.Errorf("the handle says %+v", h)
		}
		a.wantKinds("acquired", "restored")
	})
}

// RO-2: the refusal names the owner, and the refusing replica touches no file.
func TestOwnedElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		a.open(key(t, 1))
		before := w.copies.calls()
		_, err := b.Open(t.Context(), key(t, 1))
		var heldError *coord.LeaseHeldError
		if !errors.As(err, &heldError) || heldError.Record.Owner != "a" {
			t.Errorf("got %v, want LEASE_HELD by a", err)
		}
		if _, err := os.Stat(b.TenantRoot(key(t, 1))); !os.IsNotExist(err) {
			t.Errorf("the refusing replica made %s", b.TenantRoot(key(t, 1)))
		}
		if w.copies.calls() != before {
			t.Error("the refusing replica touched the copies")
		}
		if b.HandleOf(key(t, 1)) != nil {
			t.Error("the refusing replica keeps a handle")
		}
	})
}

// An opening outlives the caller that began it.
func TestOpeningOutlivesItsCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		letGo := w.copies.hold() // the claim
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Open(ctx, key(t, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's deadline", err)
		}
		time.Sleep(20 * time.Second) // longer than the TTL: the lease is renewed meanwhile
		letGo()
		if h := a.open(key(t, 1)); h.Epoch() != 1 || w.leases.count("acquire") != 1 {
			t.Errorf("epoch %d after %d acquisitions, want the same opening", h.Epoch(), w.leases.count("acquire"))
		}
	})
}

// RO-4: if the ledger cannot be put in place, the lease is released and nothing
// is served.
func TestFailedOpenReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		w.copies.fail(errSwitchedOff)
		_, err := a.Open(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeCopyStoreUnavailable)
		if a.HandleOf(key(t, 1)) != nil || a.OpenCount() != 0 {
			t.Error("a tenant that was not opened is served")
		}
		a.wantKinds("acquired", "released(false)")
		w.copies.fail(nil)
		if h := b.open(key(t, 1)); h.Epoch() != 2 {
			t.Errorf("the next owner has epoch %d, want 2 at once", h.Epoch())
		}
	})
}

// An owner that was superseded while it opened says so, not that the copies are bad.
func TestOpenLosesItsLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		defer w.copies.hold()()
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
		_, err := a.Open(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeLeaseLost)
		a.wantKinds("acquired", "lost")
	})
}

// An owner whose lease ran out between its claim and its serving never serves.
func TestOpenProvesTheLeaseBeforeItServes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		letGo := w.copies.hold()
		opened := make(chan error, 1)
		go func() { _, err := a.Open(context.Background(), key(t, 1)); opened <- err }()
		synctest.Wait() // the claim is on its way
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(ttl)
		letGo()
		wantCode(t, <-opened, coord.CodeFenced)
		w.leases.fail("renew", nil)
		if h := b.open(key(t, 1)); h.Epoch() != 2 {
			t.Errorf("epoch %d, want 2", h.Epoch())
		}
	})
}

// Design: reads never create a tenant, and an unknown one leaves nothing anywhere.
func TestOpenExistingCreatesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		_, err := a.OpenExisting(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeTenantUnknown)
		if _, known, _ := w.leases.Read(t.Context(), key(t, 1)); known || len(w.copies.names(t)) > 0 {
			t.Error("a read created the tenant")
		}
		h := a.open(key(t, 1))
		if same, err := a.OpenExisting(t.Context(), key(t, 1)); err != nil || same != h {
			t.Errorf("OpenExisting of an open tenant: %v, %v", same, err)
		}
		if _, err := h.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = a.OpenExisting(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeTenantUnknown)
	})
}

// RO-3: tenants have their own directory, database and ledger.
func TestTenantsAreIsolated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h1, h2 := a.open(key(t, 1)), a.open(key(t, 2))
		mustAdd(t, h1, "one")
		wantHeld(t, h1, "one")
		wantHeld(t, h2)
		if a.TenantRoot(key(t, 1)) == a.TenantRoot(key(t, 2)) {
			t.Error("two tenants share a directory")
		}
	})
}

// CP-4: local files never survive an open.
func TestLocalFilesDoNotSurvive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustAdd(t, h, "two")
		if err := h.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(a.TenantRoot(key(t, 1)), "ledger.db")
		if _, err := os.Stat(path); err != nil {
			t.Errorf("an abandoned ledger stays until the next open: %v", err)
		}
		wantHeld(t, a.open(key(t, 1)), "one")
	})
}

// RO-14: the cap counts openings too, and is checked before anything is touched.
func TestCapacity(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a", func(o *router.Options) { o.MaxTenants = 2 })
		h := a.open(key(t, 1))
		letGo := w.copies.hold()
		go a.Open(context.Background(), key(t, 2))
		synctest.Wait()
		_, err := a.Open(t.Context(), key(t, 3))
		wantCode(t, err, coord.CodeAtCapacity)
		if _, known, _ := w.leases.Read(t.Context(), key(t, 3)); known {
			t.Error("the lease was touched")
		}
		letGo()
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.open(key(t, 3))
	})
}

// RO-17: all violations are named together.
func TestOptionsAreCheckedTogether(t *testing.T) {
	_, err := router.New(router.Options{LeaseTTL: time.Second, LeaseMargin: time.Second, DrainTimeout: -1, MaxTenants: -1})
	wantCode(t, err, coord.CodeOptionsInvalid)
	for _, name := range []string{"ReplicaID", "StateRoot", "Leases", "Copies", "margin", "RenewEvery", "DrainTimeout", "MaxTenants"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// Issue 6, numbers: an opening opens no connection, so that a replica that takes over
// thousands of tenants needs descriptors only for those in use; and it asks for no
// renewal, which may wait for others to share it.
func TestOpeningIsCheap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		for n := range 20 {
			h := a.open(key(t, n))
			mustAdd(t, h, "one")
			if err := h.Handoff(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		renewals, began := w.leases.count("renew"), time.Now()
		for n := range 20 {
			if h := b.open(key(t, n)); connections(t, h) != 0 || descriptors(t, b.TenantRoot(h.Key())) != 0 {
				t.Errorf("an opening left %d connections", connections(t, h))
			}
		}
		if n := w.leases.count("renew") - renewals; n != 0 || time.Since(began) != 0 {
			t.Errorf("20 openings took %v and asked for %d renewals", time.Since(began), n)
		}
		wantHeld(t, b.open(key(t, 7)), "one")
	})
}
