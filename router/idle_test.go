package router_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

const idleClose = 10 * time.Second

func idling(o *router.Options) { o.IdleClose = idleClose }

// connections returns how many connections the tenant's ledger has.
func connections(t *testing.T, h *router.Handle) int {
	t.Helper()
	stats, err := h.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats.Connections
}

func ledgerOf(n *node, h *router.Handle) string {
	return filepath.Join(n.TenantRoot(h.Key()), "ledger.db")
}

// descriptors counts what this process has open below dir.
func descriptors(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, dir) {
			n++
		}
	}
	return n
}

// Issue 6, 5, GU-4: an idle tenant holds its lease and no descriptor; the next call
// goes on under the same tenure, on what was taken from the handle before.
func TestIdleTenantHoldsOnlyItsLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a", idling)
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		stmt, err := h.DB().Prepare("SELECT count(*) FROM events")
		if err != nil {
			t.Fatal(err)
		}
		defer stmt.Close()
		root := a.TenantRoot(h.Key())
		if descriptors(t, root) == 0 || h.Idle() {
			t.Fatal("an open ledger has no descriptor: the test sees nothing")
		}
		renewals := w.leases.count("renew")
		time.Sleep(2 * idleClose)
		synctest.Wait()
		if n, open := connections(t, h), descriptors(t, root); n != 0 || open != 0 || !h.Idle() {
			t.Errorf("idle, it has %d connections and %d descriptors", n, open)
		}
		if _, err := os.Stat(ledgerOf(a, h) + "-wal"); !os.IsNotExist(err) {
			t.Errorf("idle, it has a write-ahead log (%v)", err)
		}
		if w.leases.count("renew")-renewals < 5 {
			t.Errorf("idle, it was renewed %d times", w.leases.count("renew")-renewals)
		}
		_, err = w.router("b").Open(t.Context(), h.Key())
		wantCode(t, err, coord.CodeLeaseHeld)
		var n int
		if err := stmt.QueryRow().Scan(&n); err != nil || n != 1 {
			t.Errorf("a statement made before finds %d events (%v)", n, err)
		}
		mustAdd(t, h, "two")
		wantHeld(t, h, "one", "two")
		if h.Epoch() != 1 || a.HandleOf(h.Key()) != h {
			t.Errorf("it woke as another tenure, at epoch %d", h.Epoch())
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, w.router("c").open(h.Key()), "one", "two")
	})
}

// Issue 6, 5: neither copies nor drills wake a tenant that nobody writes to, and what
// was written last is copied without waking it.
func TestCopiesLetIdleTenantsRest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a", idling, func(o *router.Options) { o.SnapshotEvery, o.DrillEvery = time.Minute, 2*time.Minute })
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		time.Sleep(2 * idleClose)
		for range 300 {
			if n := connections(t, h); n != 0 {
				t.Fatalf("an idle tenant has %d connections", n)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if a.wantSuffixes(t, "snapshot(1)", "proved"); w.copies.calls() != 3 {
			t.Errorf("%d objects were created, want the claim, an image and its manifest", w.copies.calls())
		}
	})
}

// wantSuffixes demands that each of the kinds came at least once.
func (n *node) wantSuffixes(t *testing.T, want ...string) {
	t.Helper()
	kinds := strings.Join(n.kinds(), " ")
	for _, kind := range want {
		if !strings.Contains(kinds, kind) {
			t.Errorf("no %s in %s", kind, kinds)
		}
	}
}

// Issue 6, numbers: an idle tenant has at most three goroutines.
func TestGoroutinesOfIdleTenants(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a", idling, func(o *router.Options) { o.SnapshotEvery, o.DrillEvery = time.Hour, time.Hour })
		synctest.Wait()
		before := runtime.NumGoroutine()
		const tenants = 20
		for i := range tenants {
			h := a.open(key(t, i))
			mustAdd(t, h, "one")
			held(t, h)
		}
		time.Sleep(2 * idleClose)
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 3*tenants {
			t.Errorf("%d idle tenants have %d goroutines", tenants, n)
		}
	})
}

// Issue 6, 5: a tenant that nobody uses for longer is handed off to nobody: its writes
// are copied, nothing is left of it here, and the next request opens it anew. One that
// is used, in whatever way, is not.
func TestIdleHandoff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const after = time.Minute
		a := w.router("a", idling, func(o *router.Options) { o.IdleHandoff = after })
		h, inRun, inDB := a.open(key(t, 1)), a.open(key(t, 2)), a.open(key(t, 3))
		mustAdd(t, h, "one")
		b := startBusy(t, inRun) // uses no connection, but may yet
		for range 12 {
			if h.State() != router.StateServing {
				t.Fatal("it was handed off too early")
			}
			held(t, inDB)
			time.Sleep(after / 12)
		}
		for range 12 {
			held(t, inDB)
			time.Sleep(after / 12)
		}
		<-h.Done()
		wantCode(t, h.Err(), coord.CodeHandleClosed)
		if err := b.end(); err != nil || inRun.State() != router.StateServing || inDB.State() != router.StateServing {
			t.Errorf("tenants in use are %s and %s (%v)", inRun.State(), inDB.State(), err)
		}
		if a.HandleOf(key(t, 1)) != nil || a.OpenCount() != 2 {
			t.Error("there is something left of it")
		}
		next := w.router("b").open(key(t, 1))
		if wantHeld(t, next, "one"); next.Epoch() != 2 {
			t.Errorf("the next epoch is %d", next.Epoch())
		}
	})
}

// An idle handoff that fails leaves the tenant serving, and is tried again.
func TestIdleHandoffIsRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.router("a", idling, func(o *router.Options) { o.IdleHandoff = time.Minute })
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		w.copies.fail(errSwitchedOff)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if h.State() != router.StateServing {
			t.Fatalf("without a copy it is %s", h.State())
		}
		failed := strings.Count(strings.Join(a.kinds(), " "), "snapshot_failed")
		if failed == 0 || failed > 4 {
			t.Errorf("%d attempts in three minutes", failed)
		}
		w.copies.fail(nil)
		time.Sleep(2 * time.Minute)
		<-h.Done()
		a.wantSuffixes(t, "released(true)")
	})
}

// An idle ledger that other hands deleted does not come back empty: the tenure ends,
// whether or not anybody asks, and the next one starts from the newest copy.
func TestIdleLedgerIsDeleted(t *testing.T) {
	for how, notice := range map[string]func(t *testing.T, h *router.Handle){
		"a call notices": func(t *testing.T, h *router.Handle) {
			wantCode(t, add(t.Context(), h, "three"), coord.CodeLedgerGone)
		},
		"nobody asks": func(t *testing.T, h *router.Handle) { time.Sleep(idleClose) },
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.router("a", idling)
				h := a.open(key(t, 1))
				mustAdd(t, h, "one")
				if _, err := h.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				mustAdd(t, h, "two")
				time.Sleep(2 * idleClose)
				synctest.Wait()
				if err := os.Remove(ledgerOf(a, h)); err != nil {
					t.Fatal(err)
				}
				notice(t, h)
				<-h.Done()
				wantCode(t, h.Err(), coord.CodeLedgerGone)
				a.wantKinds("acquired", "restored", "snapshot(1)", "released(false)")
				next := a.open(key(t, 1)) // at once: the lease was given back
				if wantHeld(t, next, "one"); next.Epoch() != 2 {
					t.Errorf("the next epoch is %d", next.Epoch())
				}
			})
		})
	}
}

// Issue 6, 3: periodic copies of all tenants keep to the limit, one that is stuck
// delays only its slot, and all others are made in time.
func TestPeriodicCopiesShareSlots(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const slots, tenants, every = 2, 12, time.Minute
		stuck := &sickFor{Store: w.copies, prefix: key(t, 0).String() + "/"}
		most := 0
		a := w.router("a", func(o *router.Options) {
			o.Copies, o.SnapshotEvery, o.CopyConcurrency = stuck, every, slots
			o.CopyTimeout, o.CopyStallTimeout = time.Hour, time.Hour
		})
		var handles []*router.Handle
		for i := range tenants {
			handles = append(handles, a.open(key(t, i)))
		}
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		stuck.how.Store(&hang)
		letGo := w.copies.hold()
		for _, h := range handles {
			mustAdd(t, h, "one")
		}
		time.Sleep(2 * every)
		synctest.Wait()
		if most = w.copies.running(); most >= slots+1 || most == 0 {
			t.Errorf("%d copies at once, at most %d", most, slots)
		}
		letGo()
		time.Sleep(every)
		copied := strings.Count(strings.Join(a.kinds(), " "), "snapshot(1)")
		if copied != tenants-1 {
			t.Errorf("%d tenants were copied beside the stuck one, want %d", copied, tenants-1)
		}
		stuck.how.Store(nil)
		if err := handles[0].Abandon(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Issue 6, 3: tenants that were opened together are not copied together, and each
// within its period.
func TestPeriodicCopiesAreSpread(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const tenants, every = 30, time.Minute
		a := w.router("a", func(o *router.Options) { o.SnapshotEvery = every })
		for i := range tenants {
			mustAdd(t, a.open(key(t, i)), "one")
		}
		time.Sleep(every)
		synctest.Wait()
		seconds, copies := make(map[string]bool), 0
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.mu.events {
			if e.Kind == router.EventSnapshot {
				seconds[fmt.Sprint(e.Time.Unix())] = true
				copies++
			}
		}
		if copies != tenants || len(seconds) < tenants/2 {
			t.Errorf("%d copies in %d different seconds", copies, len(seconds))
		}
	})
}

func TestIdleOptionsAreChecked(t *testing.T) {
	_, err := router.New(router.Options{IdleClose: time.Millisecond, IdleHandoff: -1, CopyConcurrency: -1})
	for _, name := range []string{"IdleClose", "IdleHandoff", "CopyConcurrency"} {
		if !errors.Is(err, coord.CodeOptionsInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
}
