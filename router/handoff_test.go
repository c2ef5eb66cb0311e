package router_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// RO-8: the next owner starts at once with every acknowledged write.
func TestHandoffLosesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one", "two")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-h.Done()
		wantCode(t, h.Err(), coord.CodeHandleClosed)
		wantCode(t, add(t.Context(), h, "three"), coord.CodeHandleClosed)
		if _, err := h.DB().Exec("SELECT 1"); err == nil {
			t.Error("the database of a closed handle works")
		}
		next := b.open(key(t, 1))
		if next.Epoch() != 2 || next.RestoredFrom() == nil || next.RestoredFrom().Epoch != 1 {
			t.Errorf("epoch %d restored from %v", next.Epoch(), next.RestoredFrom())
		}
		wantHeld(t, next, "one", "two")
		a.wantKinds("acquired", "restored", "snapshot(1)", "released(true)")
	})
}

// An unchanged ledger is handed off without a copy of its own.
func TestHandoffOfAnUnchangedLedgerUploadsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		h = b.open(key(t, 1))
		before := w.copies.calls()
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.copies.calls() - before; n != 0 {
			t.Errorf("%d objects were created for an unchanged ledger", n)
		}
		wantHeld(t, a.open(key(t, 1)), "one")
	})
}

// CP-8: retention does not depend on periodic copies.
func TestHandoffsLeaveOnlyTheNewestCopies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		for n := range 6 {
			h := a.open(key(t, 1))
			mustAdd(t, h, fmt.Sprint(n))
			if err := h.Handoff(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(strings.Join(w.copies.names(t), " "), ".db"); n != router.DefaultKeepCopies {
			t.Errorf("%d images are kept, want %d", n, router.DefaultKeepCopies)
		}
		wantHeld(t, a.open(key(t, 1)), "0", "1", "2", "3", "4", "5")
	})
}

// RO-7: running work finishes and is acknowledged, new work is refused meanwhile.
func TestDrainWaitsForRunningWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		work := startBusy(t, h)
		done := make(chan error, 1)
		go func() { done <- h.Handoff(context.Background()) }()
		synctest.Wait()
		if h.State() != router.StateDraining {
			t.Errorf("state %s, want draining", h.State())
		}
		wantCode(t, add(t.Context(), h, "late"), coord.CodeDraining)
		wantCode(t, h.Handoff(t.Context()), coord.CodeDraining)
		_, err := a.Open(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeDraining)
		time.Sleep(3 * ttl) // RO-6: renewed through the drain
		if err := work.end(); err != nil {
			t.Errorf("running work was not acknowledged: %v", err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b.open(key(t, 1)), "busy")
	})
}

// RO-9: a drain that exceeds its timeout reports the calls in flight and serves again.
func TestDrainTimeoutServesAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		work := startBusy(t, h)
		began := w.clock.Now()
		err := h.Handoff(t.Context())
		var timeout *coord.DrainTimeoutError
		if !errors.As(err, &timeout) || timeout.InFlight != 1 {
			t.Errorf("got %v, want DRAIN_TIMEOUT with one call", err)
		}
		if took := w.clock.Now() - began; took != router.DefaultDrainTimeout {
			t.Errorf("timed out after %v, want %v", took, router.DefaultDrainTimeout)
		}
		mustAdd(t, h, "again")
		if err := work.end(); err != nil {
			t.Error(err)
		}
		// RO-6: one renewal loop, not two.
		before := w.leases.count("renew")
		time.Sleep(ttl)
		if n := w.leases.count("renew") - before; n < 2 || n > 4 {
			t.Errorf("%d renewals in one TTL after a failed handoff, want about 3", n)
		}
		a.wantKinds("acquired", "restored", "drain_timeout(1)")
	})
}

// RO-8: a flush that fails keeps serving and keeps the lease; the handles work again.
func TestFailedFlushKeepsServing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		w.copies.fail(errSwitchedOff)
		wantCode(t, h.Handoff(t.Context()), coord.CodeCopyStoreUnavailable)
		if h.State() != router.StateServing || w.leases.count("release") != 0 {
			t.Errorf("state %s after %d releases, want serving and none", h.State(), w.leases.count("release"))
		}
		mustAdd(t, h, "two")
		if _, err := h.DB().ExecContext(t.Context(), "CREATE TABLE x(y)"); err != nil {
			t.Errorf("the long-lived handle does not work again: %v", err)
		}
		w.copies.fail(nil)
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b.open(key(t, 1)), "one", "two")
		a.wantKinds("acquired", "restored", "snapshot_failed(COPY_STORE_UNAVAILABLE)", "snapshot(2)", "released(true)")
	})
}

// RO-7: while the final copy is made nothing can be written, not even outside Run.
func TestFlushClosesTheView(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		tx, err := h.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("CREATE TABLE late(x)"); err != nil {
			t.Fatal(err)
		}
		letGo := w.copies.hold()
		done := make(chan error, 1)
		go func() { done <- h.Handoff(context.Background()) }()
		synctest.Wait()
		if h.State() != router.StateFlushing {
			t.Fatalf("state %s, want flushing", h.State())
		}
		wantCode(t, tx.Commit(), coord.CodeDraining)
		_, err = h.DB().Exec("CREATE TABLE later(x)")
		wantCode(t, err, coord.CodeDraining)
		letGo()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// RO-8: a flush that fails because the lease is gone ends the tenure.
func TestFlushOfALostLeaseEndsTheTenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		defer w.copies.hold()()
		done := make(chan error, 1)
		go func() { done <- h.Handoff(context.Background()) }()
		synctest.Wait()
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
		err := <-done
		var fenced *coord.FencedError
		if !errors.As(err, &fenced) || fenced.Reason != coord.FenceLost {
			t.Errorf("got %v, want FENCED, lost", err)
		}
		<-h.Done()
		if n := w.leases.count("release"); n != 0 {
			t.Errorf("a lost lease was released %d times", n)
		}
		a.wantKinds("acquired", "restored", "lost")
	})
}

// RO-8: a fence that merely passed locally is not the end; a renewal resumes.
func TestFlushBehindTheFenceResumes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(ttl - margin)
		wantCode(t, add(t.Context(), h, "fenced"), coord.CodeFenced)
		wantCode(t, h.Handoff(t.Context()), coord.CodeFenced)
		if h.State() != router.StateServing {
			t.Errorf("state %s, want serving", h.State())
		}
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
		<-h.Done()
		wantCode(t, add(t.Context(), h, "lost"), coord.CodeFenced)
	})
}

// RO-9: a handoff whose tenant is abandoned meanwhile says so, and nothing is
// released twice.
func TestAbandonDuringDrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		work := startBusy(t, h)
		done := make(chan error, 1)
		go func() { done <- h.Handoff(context.Background()) }()
		synctest.Wait()
		if err := h.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := <-done
		wantCode(t, err, coord.CodeHandleClosed)
		if !strings.Contains(err.Error(), "abandoned") {
			t.Errorf("the handoff does not say what happened: %v", err)
		}
		if n := w.leases.count("release"); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
		if err := work.end(); err == nil {
			t.Error("work of an abandoned tenant was acknowledged")
		}
		wantHeld(t, b.open(key(t, 1)))
		a.wantKinds("acquired", "restored", "released(false)")
	})
}

// RO-10: abandoning gives up what no copy holds, at once.
func TestAbandonGivesUpTheRest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustAdd(t, h, "two")
		if err := h.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, h.Abandon(t.Context()), coord.CodeHandleClosed)
		wantHeld(t, b.open(key(t, 1)), "one")
	})
}

// CP-9: after a forget the tenant starts anew at the next epoch, and what an older
// owner still uploads is dead, and swept.
func TestForget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		late := w.copies.names(t)
		done, err := h.Forget(t.Context())
		if err != nil || done.Floor != 1 || done.DeletedObjects != len(late) || len(late) != 3 {
			t.Errorf("Forget() = %+v, %v, want floor 1 and %d objects", done, err, len(late))
		}
		if names := w.copies.names(t); len(names) > 0 {
			t.Errorf("%v remain", names)
		}
		if _, err := os.Stat(a.TenantRoot(key(t, 1))); !os.IsNotExist(err) {
			t.Error("local files remain")
		}
		for _, name := range late {
			if err := w.copies.Store.Create(t.Context(), name, strings.NewReader("late"), 4); err != nil {
				t.Fatal(err)
			}
		}
		next := b.open(key(t, 1))
		wantHeld(t, next)
		if next.Epoch() != 2 || next.RestoredFrom() != nil {
			t.Errorf("epoch %d restored from %v, want a new ledger at epoch 2", next.Epoch(), next.RestoredFrom())
		}
		synctest.Wait()
		for _, name := range w.copies.names(t) {
			if strings.Contains(name, "/e00000001/") {
				t.Errorf("%s was not swept", name)
			}
		}
		a.wantKinds("acquired", "restored", "snapshot(1)", "released(false)")
	})
}

// CP-9: a forget that failed half-way is repeated by the router, as often as it takes.
func TestForgetIsRepeatable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		_, err := a.Forget(t.Context(), key(t, 1))
		wantCode(t, err, coord.CodeTenantUnknown)
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		w.leases.fail("forget", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		_, err = h.Forget(t.Context())
		wantCode(t, err, coord.CodeLeaseStoreUnavailable)
		wantCode(t, add(t.Context(), h, "two"), coord.CodeHandleClosed) // the floor may have been raised
		w.leases.fail("forget", nil)
		for range 2 {
			if _, err := a.Forget(t.Context(), key(t, 1)); err != nil {
				t.Fatal(err)
			}
		}
		wantHeld(t, a.open(key(t, 1)))
	})
}

// RO-10: a forget under way wins over an abandon.
func TestForgetWinsOverAbandon(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		work := startBusy(t, h)
		done := make(chan error, 1)
		go func() { _, err := h.Forget(context.Background()); done <- err }()
		synctest.Wait()
		wantCode(t, h.Abandon(t.Context()), coord.CodeDraining)
		if err := work.end(); err != nil {
			t.Errorf("running work: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// RO-5: what a callback keeps does not work once it has returned; the handle's own
// database goes on.
func TestWhatACallbackKeepsEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		mustAdd(t, h, "one")
		var (
			view *router.View
			stmt *sql.Stmt
			rows *sql.Rows
			tx   *sql.Tx
		)
		err := h.Run(t.Context(), func(ctx context.Context, v *router.View) (err error) {
			view = v
			if stmt, err = v.DB().Prepare("SELECT count(*) FROM events"); err != nil {
				return err
			}
			if rows, err = v.DB().Query("SELECT seq FROM events"); err != nil {
				return err
			}
			tx, err = v.DB().Begin()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := stmt.QueryRow().Scan(new(int)); err == nil {
			t.Error("a statement works on")
		}
		if rows.Next() || rows.Err() == nil {
			t.Error("a result works on")
		}
		if _, err := tx.Exec("CREATE TABLE kept(x)"); err == nil {
			t.Error("a transaction works on")
		}
		if err := tx.Commit(); err == nil {
			t.Error("a transaction commits after its callback")
		}
		if _, err := view.DB().Exec("CREATE TABLE kept(x)"); err == nil {
			t.Error("the database works on")
		}
		if _, _, err := view.Ledger().Append(t.Context(), noteEvent("kept")); err == nil {
			t.Error("the ledger works on")
		}
		if err := h.DB().QueryRow("SELECT count(*) FROM events").Scan(new(int)); err != nil {
			t.Errorf("the handle's own database: %v", err)
		}
		wantHeld(t, h, "one")
	})
}

// GU-3: behind the fence work is not even begun.
func TestWorkBehindTheFenceIsNotBegun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(ttl)
		wantCode(t, h.Run(t.Context(), func(context.Context, *router.View) error {
			t.Error("the callback was called")
			return nil
		}), coord.CodeFenced)
	})
}

// Trap 14: the lease is given back only after the ledger is closed.
func TestLedgerIsClosedBeforeTheRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		if n := openFilesBelow(t, a.TenantRoot(key(t, 1))); n == 0 {
			t.Fatal("an open ledger has no descriptor: the test sees nothing")
		}
		w.leases.before("release", func() {
			if n := openFilesBelow(t, a.TenantRoot(key(t, 1))); n > 0 {
				t.Errorf("%d descriptors are open when the lease is given back", n)
			}
		})
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func openFilesBelow(t *testing.T, dir string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir) {
			n++
		}
	}
	return n
}

// CP-9: no periodic copy is on its way when the floor is raised.
func TestForgetStopsCopying(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a", func(o *router.Options) { o.SnapshotEvery = time.Second }).open(key(t, 1))
		mustAdd(t, h, "one")
		defer w.copies.hold()()
		time.Sleep(2 * time.Second)
		if w.copies.running() == 0 {
			t.Fatal("no copy is on its way: the test sees nothing")
		}
		w.leases.before("forget", func() {
			if n := w.copies.running(); n > 0 {
				t.Errorf("%d uploads run while the floor is raised", n)
			}
		})
		if _, err := h.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// GU-3: work that ends behind the fence is not acknowledged, though it committed.
func TestWorkThatOutlastsTheFence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a")
		h := a.open(key(t, 1))
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		err := h.Run(t.Context(), func(ctx context.Context, v *router.View) error {
			_, _, err := v.Ledger().Append(ctx, noteEvent("unknown"))
			time.Sleep(ttl)
			return err
		})
		var unknown *coord.OutcomeUnknownError
		if !errors.As(err, &unknown) || errors.Is(err, coord.CodeFenced) {
			t.Errorf("got %v, want OUTCOME_UNKNOWN", err)
		}
	})
}
