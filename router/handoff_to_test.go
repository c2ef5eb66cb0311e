package router_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// successor warms the tenant's copy at n and begins to wait for the tenant.
func (n *node) successor(k coord.Key) (*wait, error) {
	_, discard, err := n.Prewarm(context.Background(), k)
	if err != nil {
		return nil, err
	}
	w := n.wait(k)
	n.t.Cleanup(discard)
	return w, nil
}

// RO-8, RO-18: a planned move loses nothing; a ledger that does not change any more
// moves no image while work pauses, and one that does moves what it is then.
func TestHandoffToSuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		late      bool // a write that the warm copy lacks
		inPause   int  // images read after the successor was ready
		snapshots []string
	}{
		"unchanged": {false, 0, []string{"acquired", "restored", "snapshot(1)", "released(true)"}},
		"changed":   {true, 1, []string{"acquired", "restored", "snapshot(1)", "snapshot(2)", "released(true)"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b, k := w.router("a"), w.router("b"), key(t, 1)
				h := a.open(k)
				mustAdd(t, h, "1")
				want := []string{"1"}
				var waiter *wait
				read := 0
				err := h.HandoffTo(t.Context(), func(context.Context) (err error) {
					waiter, err = b.successor(k)
					read = w.copies.imagesRead()
					if c.late {
						mustAdd(t, h, "2") // the tenant serves meanwhile
						want = append(want, "2")
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				got := waiter.handle(t)
				wantHeld(t, got, want...)
				if n := w.copies.imagesRead() - read; n != c.inPause {
					t.Errorf("%d images were read in the pause, want %d", n, c.inPause)
				}
				a.wantKinds(c.snapshots...)
				if left, err := filepath.Glob(filepath.Join(b.TenantRoot(k), ".warm-*")); err != nil || len(left) > 0 {
					t.Errorf("left behind: %v, %v", left, err)
				}
			})
		})
	}
}

// A successor that cannot be told changes nothing, and neither does a copy that fails.
func TestHandoffToNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, k := w.router("a"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		nobody := errors.New("no such replica")
		if err := h.HandoffTo(t.Context(), func(context.Context) error { return nobody }); !errors.Is(err, nobody) {
			t.Errorf("got %v", err)
		}
		mustAdd(t, h, "2")
		w.copies.fail(errSwitchedOff)
		err := h.HandoffTo(t.Context(), func(context.Context) error { t.Error("told a successor"); return nil })
		wantCode(t, err, coord.CodeCopyStoreUnavailable)
		w.copies.fail(nil)
		mustAdd(t, h, "3")
		if h.State() != router.StateServing || h.Epoch() != 1 {
			t.Errorf("%s at epoch %d", h.State(), h.Epoch())
		}
	})
}

// Of two planned moves at once the second is told so, and the request of the successor,
// which stands already, does not move the tenant before its time.
func TestHandoffToTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		time.Sleep(2 * router.DefaultMinTenure)
		var waiter *wait
		err := h.HandoffTo(t.Context(), func(ctx context.Context) (err error) {
			wantCode(t, h.HandoffTo(ctx, func(context.Context) error { return nil }), coord.CodeDraining)
			waiter, err = b.successor(k)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			mustAdd(t, h, "2")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		wantHeld(t, waiter.handle(t), "1", "2")
		wantCode(t, h.HandoffTo(t.Context(), nil), coord.CodeHandleClosed)
	})
}

// A planned move that failed is over: the request of its successor, which stands a moment
// longer, does not bring it about after all.
func TestFailedMoveIsOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		time.Sleep(2 * router.DefaultMinTenure)
		stuck := startBusy(t, h)
		var waiter *wait
		err := h.HandoffTo(t.Context(), func(context.Context) (err error) {
			waiter, err = b.successor(k)
			time.Sleep(3 * time.Second) // so that the owner looks at requests soon after the failure
			return err
		})
		wantCode(t, err, coord.CodeDrainTimeout)
		if err := stuck.end(); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			time.Sleep(time.Second)
			mustAdd(t, h, "still here")
		}
		waiter.cancel()
		<-waiter.result
		time.Sleep(time.Hour)
		mustAdd(t, h, "and later")
	})
}

// A successor that dies with the tenant under way leaves it to whoever asks.
func TestSuccessorDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		err := h.HandoffTo(t.Context(), func(context.Context) error {
			waiter, err := b.successor(k)
			waiter.cancel()
			<-waiter.result
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got := a.open(k)
		wantHeld(t, got, "1")

		// As it acquires: its lease has to end first.
		var waiter *wait
		err = got.HandoffTo(t.Context(), func(context.Context) (err error) {
			waiter, err = b.successor(k)
			w.leases.fail("renew", errSwitchedOff)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		waiter.handle(t)
		next := a.wait(k).handle(t)
		w.leases.fail("renew", nil)
		if next.Epoch() != 4 {
			t.Errorf("epoch %d, want 4", next.Epoch())
		}
		wantHeld(t, next, "1")
	})
}

// CP-4: what lies warm is believed only as long as nothing came after it, whoever wrote
// that.
func TestWarmCopyOfAnEarlierTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, discard, err := b.Prewarm(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		defer discard()
		for _, id := range []string{"2", "3"} {
			mustAdd(t, h, id)
			if err := h.Handoff(t.Context()); err != nil {
				t.Fatal(err)
			}
			h = a.open(k)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b.open(k), "1", "2", "3")
	})
}

// What is warm goes with its discard, and is refused where the tenant is at home.
func TestPrewarmLeavesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, k := w.router("a"), w.router("b"), key(t, 1)
		if ref, discard, err := b.Prewarm(t.Context(), k); err != nil || ref != nil {
			t.Errorf("a tenant that never was is warm from %v, %v", ref, err)
		} else {
			discard()
		}
		h := a.open(k)
		mustAdd(t, h, "1")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, _, err := a.Prewarm(t.Context(), k)
		wantCode(t, err, coord.CodeLeaseHeld)
		_, first, err := b.Prewarm(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		ref, second, err := b.Prewarm(t.Context(), k)
		if err != nil || ref == nil || ref.Seq != 1 {
			t.Fatalf("warm from %v, %v", ref, err)
		}
		first()
		second()
		second()
		if left, err := os.ReadDir(b.TenantRoot(k)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, _, err = b.Prewarm(t.Context(), k)
		wantCode(t, err, coord.CodeRouterClosed)
	})
}

// A tenant that was handed off takes no room on this replica any more.
func TestHandoffLeavesNoLedger(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, k := w.router("a"), key(t, 1)
		h := a.open(k)
		mustAdd(t, h, "1")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(a.TenantRoot(k)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// silentReads is a lease store that does not answer when it is asked who owns a tenant.
type silentReads struct{ coord.LeaseStore }

func (silentReads) Read(ctx context.Context, _ coord.Key) (coord.Record, bool, error) {
	<-ctx.Done()
	return coord.Record{}, false, ctx.Err()
}

// RO-18: a lease store that does not answer holds nobody who warms a copy.
func TestPrewarmIsBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b := w.router("b", func(o *router.Options) { o.Leases = silentReads{w.leases} })
		done := make(chan error, 1)
		go func() {
			_, _, err := b.Prewarm(t.Context(), key(t, 1))
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Error("still waiting after an hour")
		}
	})
}
