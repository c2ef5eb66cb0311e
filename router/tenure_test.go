package router_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

func noteEvent(id string) ledger.Event {
	return ledger.Event{Actor: "test", Kind: "note", Payload: []byte("{}"), IdemKey: id}
}

// RO-6: renewed every third of the TTL, and after a failure sooner and sooner.
func TestRenewals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		before := w.leases.count("renew")
		time.Sleep(30 * time.Second)
		if n := w.leases.count("renew") - before; n != 9 { // every 10s/3: the ninth at 29.99 s
			t.Errorf("%d renewals in 30 s, want 9", n)
		}
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		before = w.leases.count("renew")
		time.Sleep(ttl - margin)
		if n := w.leases.count("renew") - before; n < 8 {
			t.Errorf("%d attempts before the fence, want ever more of them", n)
		}
		wantCode(t, h.Check(), coord.CodeFenced)
		w.leases.fail("renew", nil)
		time.Sleep(margin / 2)
		if err := h.Check(); err != nil {
			t.Errorf("the store still had the lease, and it was not resumed: %v", err)
		}
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(2 * ttl)
		w.leases.fail("renew", nil)
		<-h.Done()
		wantCode(t, h.Err(), coord.CodeFenced)
	})
}

// Trap 10: two renewals that fail in a row do not cost the tenant.
func TestTwoBlipsAreSurvived(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		for range 3 {
			w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
			time.Sleep(4 * time.Second)
			if err := h.Check(); err != nil {
				t.Errorf("fenced within two renewals: %v", err)
			}
			w.leases.fail("renew", nil)
			time.Sleep(ttl)
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if h.Epoch() != 1 {
			t.Errorf("epoch %d, want 1", h.Epoch())
		}
	})
}

// RO-12: losing the lease ends the handle for good, and the tenant may be opened anew.
func TestLostLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
		<-h.Done()
		w.leases.fail("renew", nil)
		wantCode(t, h.Err(), coord.CodeFenced)
		wantCode(t, add(t.Context(), h, "two"), coord.CodeFenced)
		if _, err := h.DB().Exec("SELECT 1"); err == nil {
			t.Error("the ledger is open")
		}
		if a.HandleOf(key(t, 1)) != nil {
			t.Error("the handle is still in the table")
		}
		a.wantKinds("acquired", "restored", "lost")
		time.Sleep(ttl)
		if next := a.open(key(t, 1)); next.Epoch() != 2 {
			t.Errorf("epoch %d, want 2", next.Epoch())
		}
	})
}

// RO-13: periodic copies, only of what changed, and none after the end.
func TestPeriodicCopies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a", func(o *router.Options) { o.SnapshotEvery = time.Second })
		h := a.open(key(t, 1))
		created := w.copies.calls()
		time.Sleep(10 * time.Second)
		if n := w.copies.calls() - created; n != 0 {
			t.Errorf("%d objects created for an unchanged ledger", n)
		}
		mustAdd(t, h, "one")
		time.Sleep(10 * time.Second)
		if n := w.copies.calls() - created; n != 2 {
			t.Errorf("%d objects created for one change, want an image and a manifest", n)
		}
		mustAdd(t, h, "two")
		if err := h.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		created = w.copies.calls()
		time.Sleep(10 * time.Second)
		if n := w.copies.calls() - created; n != 0 {
			t.Errorf("%d objects created after the end", n)
		}
		a.wantKinds("acquired", "restored", "snapshot(1)", "released(false)")
	})
}

// A write that was acknowledged while a copy ran is copied next time.
func TestCopyDoesNotHideAConcurrentWrite(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		letGo := w.copies.hold()
		done := make(chan error, 1)
		go func() { _, err := h.Snapshot(context.Background()); done <- err }()
		synctest.Wait() // the image was taken, its upload waits
		mustAdd(t, h, "two")
		letGo()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b.open(key(t, 1)), "one", "two")
	})
}

// CP-7: requests that come together run one after the other with consecutive seqs.
func TestSnapshotsHaveConsecutiveSeqs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		mustAdd(t, h, "one")
		seqs := make(chan uint64, 8)
		var wg sync.WaitGroup
		for range cap(seqs) {
			wg.Go(func() {
				m, err := h.Snapshot(t.Context())
				if err != nil || m.Events != 1 {
					t.Errorf("snapshot: %+v, %v", m, err)
				}
				seqs <- m.Seq
			})
		}
		wg.Wait()
		seen := make(map[uint64]bool)
		for range cap(seqs) {
			seen[<-seqs] = true
		}
		for seq := uint64(1); seq <= 8; seq++ {
			if !seen[seq] {
				t.Errorf("no snapshot has seq %d", seq)
			}
		}
		if n := strings.Count(strings.Join(w.copies.names(t), " "), ".db"); n != router.DefaultKeepCopies {
			t.Errorf("%d images are kept, want %d", n, router.DefaultKeepCopies)
		}
	})
}

// RO-15: closing hands everything off, undoes openings, and names in opening order
// what it could not hand off.
func TestClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		for n := 1; n <= 20; n++ {
			mustAdd(t, a.open(key(t, n)), "kept")
		}
		stuck := []*busy{startBusy(t, a.HandleOf(key(t, 7))), startBusy(t, a.HandleOf(key(t, 13)))}
		began := w.clock.Now()
		err := a.Close(t.Context())
		var closeErr *router.CloseError
		if !errors.As(err, &closeErr) || len(closeErr.Tenants) != 2 || closeErr.Tenants[0].Key != key(t, 7) || closeErr.Tenants[1].Key != key(t, 13) {
			t.Errorf("Close() = %v, want tenants 7 and 13 named", err)
		}
		wantCode(t, err, coord.CodeDrainTimeout)
		if took := w.clock.Now() - began; took > router.DefaultDrainTimeout+time.Second {
			t.Errorf("closing took %v: one stuck tenant delays more than its lane", took)
		}
		for _, work := range stuck {
			if err := work.end(); err == nil {
				t.Error("work of a closed router was acknowledged")
			}
		}
		asked := w.leases.count("acquire")
		_, err = a.Open(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeRouterClosed)
		if w.leases.count("acquire") != asked {
			t.Error("a closed router asks for leases")
		}
		if again := a.Close(t.Context()); !errors.Is(again, coord.CodeDrainTimeout) {
			t.Errorf("closing again: %v", again)
		}
		for n := 1; n <= 20; n++ {
			if n != 7 && n != 13 {
				wantHeld(t, b.open(key(t, n)), "kept")
			}
		}
	})
}

// RO-15: an open that was under way is undone.
func TestCloseUndoesOpenings(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		letGo := w.copies.hold()
		defer letGo()
		opened := make(chan error, 1)
		go func() { _, err := a.Open(context.Background(), key(t, 1)); opened <- err }()
		synctest.Wait()
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wantCode(t, <-opened, coord.CodeRouterClosed)
		if record, _, _ := w.leases.Read(t.Context(), key(t, 1)); record.Held {
			t.Error("the lease is still held")
		}
	})
}

// RO-15: closing waits for a handoff that somebody else began.
func TestCloseWaitsForAHandoff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		work := startBusy(t, h)
		handoff, closed := make(chan error, 1), make(chan error, 1)
		go func() { handoff <- h.Handoff(context.Background()) }()
		synctest.Wait()
		go func() { closed <- a.Close(context.Background()) }()
		synctest.Wait()
		if err := work.end(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-handoff, <-closed); err != nil {
			t.Error(err)
		}
		wantHeld(t, b.open(key(t, 1)), "busy")
	})
}

// RO-8: a closing that meets a fence that has passed waits for the renewal that resumes
// the tenure, and loses nothing.
func TestCloseWaitsForAFence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		mustAdd(t, a.open(key(t, 1)), "one")
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(ttl - margin) // the fence is here, and the store has the lease for the margin
		time.AfterFunc(margin/2, func() { w.leases.fail("renew", nil) })
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, though a renewal could resume the tenure", err)
		}
		wantHeld(t, b.open(key(t, 1)), "one")
	})
}

// A lease store that does not come back holds a closing up for one lease.
func TestCloseGivesAFenceUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		mustAdd(t, a.open(key(t, 1)), "one")
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(ttl)
		begin := time.Now()
		wantCode(t, a.Close(t.Context()), coord.CodeFenced)
		if took := time.Since(begin); took > ttl+time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// RO-15: a lease that could not be given back is reported, not claimed as released.
func TestCloseReportsAnUnreleasedLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		a.open(key(t, 1))
		w.leases.fail("release", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		wantCode(t, a.Close(t.Context()), coord.CodeLeaseStoreUnavailable)
	})
}

// RO-16: an observer that panics or blocks never takes a tenant down.
func TestObserverCannotHarm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		block := make(chan struct{})
		defer close(block)
		a := w.router("a", func(o *router.Options) {
			o.Observer = func(e router.Event) {
				if e.Kind == router.EventAcquired {
					panic("observer")
				}
				<-block
			}
		})
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		if err := h.Handoff(t.Context()); err != nil {
			t.Error(err)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Issue 6, numbers: tenants that were opened at different times renew at the same few
// moments, so that the lease store can share what it sends, and none later than
// RenewEvery after the time before.
func TestRenewalsComeTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		for n := range 50 {
			a.open(key(t, n))
			time.Sleep(77 * time.Millisecond)
		}
		time.Sleep(ttl)
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		moments, last := make(map[time.Time]bool), make(map[coord.Key]time.Time)
		for _, e := range a.mu.events {
			switch e.Kind {
			case router.EventRenewed:
				moments[e.Time] = true
				fallthrough
			case router.EventAcquired:
				if before, ok := last[e.Key]; ok && e.Time.Sub(before) > ttl/3 {
					t.Errorf("%s was renewed after %v", e.Key, e.Time.Sub(before))
				}
				last[e.Key] = e.Time
			}
		}
		if most := 4 * int(14*time.Second/(ttl/3)); len(moments) == 0 || len(moments) > most+4 {
			t.Errorf("renewals at %d moments", len(moments))
		}
	})
}
