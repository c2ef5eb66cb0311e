package router_test

import (
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

// RO-11: what a crash would lose is known while it grows, with and without copies
// that are made by themselves.
func TestUncopied(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const every = time.Minute
		want := func(h *router.Handle, from, to time.Duration) {
			t.Helper()
			if got := h.Uncopied(); got < from || got > to {
				t.Errorf("uncopied for %v, want %v to %v", got, from, to)
			}
		}
		h := w.router("a").open(key(t, 1))
		time.Sleep(time.Hour)
		want(h, 0, 0) // nothing to lose
		mustAdd(t, h, "one")
		time.Sleep(time.Second)
		want(h, time.Second, time.Hour+time.Second) // nobody has looked since it was opened
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(h, 0, 0)
		mustAdd(t, h, "two")
		time.Sleep(3 * time.Second)
		want(h, 3*time.Second, 4*time.Second)

		p := w.router("b", func(o *router.Options) { o.SnapshotEvery = every }).open(key(t, 2))
		time.Sleep(10*every + every/2)
		mustAdd(t, p, "three")
		want(p, 1, every) // an idle tenant's age does not count
		time.Sleep(every)
		want(p, 0, 0)
		w.copies.fail(&coord.Error{Code: coord.CodeCopyStoreUnavailable})
		mustAdd(t, p, "four")
		time.Sleep(5 * every)
		want(p, 5*every, 6*every+time.Second)
	})
}

// Trap 67: there is one rule of durability, however a write was made: in Run, through
// the handle's own database, or by work in the background. Each shows as uncopied, and
// the final copy has them all.
func TestOneRuleOfDurability(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		background := make(chan error)
		for i, write := range []func() error{
			func() error { return add(t.Context(), h, "run") },
			func() error {
				_, _, err := h.Ledger().Append(t.Context(), ledger.Event{Actor: "a", Kind: "k", SubjectID: "s", Payload: []byte("{}"), IdemKey: "outside"})
				return err
			},
			func() error {
				go func() {
					_, err := h.DB().Exec("CREATE TABLE background(x)")
					background <- err
				}()
				return <-background
			},
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if h.Uncopied() == 0 {
				t.Errorf("write %d does not show as uncopied", i)
			}
			if i < 2 {
				if _, err := h.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := w.router("b").open(key(t, 1))
		wantHeld(t, next, "run", "outside")
		if _, err := next.DB().Exec("SELECT x FROM background"); err != nil {
			t.Errorf("the table of the background work: %v", err)
		}
	})
}
