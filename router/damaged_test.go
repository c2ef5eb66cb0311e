package router_test

import (
	"bytes"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// overwrite puts garbage into the file, which stays the same one.
func overwrite(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, bytes.Repeat([]byte{0xa5}, int(info.Size())), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A local ledger that other hands overwrite, or a disk destroys, is given up by whatever
// meets that first, and the next tenure starts from the newest copy.
func TestDamagedLedgerIsGivenUp(t *testing.T) {
	for how, c := range map[string]struct {
		idle   bool
		notice func(t *testing.T, h *router.Handle)
	}{
		"a call on an idle tenant": {true, func(t *testing.T, h *router.Handle) {
			wantCode(t, add(t.Context(), h, "three"), coord.CodeLedgerDamaged)
		}},
		"a copy of a tenant in use": {false, func(t *testing.T, h *router.Handle) {
			_, err := h.Snapshot(t.Context())
			wantCode(t, err, coord.CodeLedgerDamaged)
		}},
		"a periodic copy": {false, func(*testing.T, *router.Handle) { time.Sleep(time.Minute) }},
		"a handoff": {false, func(t *testing.T, h *router.Handle) {
			wantCode(t, h.Handoff(t.Context()), coord.CodeLedgerDamaged)
		}},
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.router("a", func(o *router.Options) {
					if c.idle {
						o.IdleClose = idleClose
					} else {
						o.SnapshotEvery = time.Minute
					}
				})
				h := a.open(key(t, 1))
				mustAdd(t, h, "one")
				if _, err := h.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				mustAdd(t, h, "two")
				if c.idle {
					time.Sleep(2 * idleClose)
					synctest.Wait()
				} else {
					// What was written last is in the log yet, which would hide the damage.
					overwrite(t, ledgerOf(a, h)+"-wal")
				}
				overwrite(t, ledgerOf(a, h))
				c.notice(t, h)
				<-h.Done()
				wantCode(t, h.Err(), coord.CodeLedgerDamaged)
				next := a.open(key(t, 1)) // at once: the lease was given back
				if wantHeld(t, next, "one"); next.Epoch() != 2 {
					t.Errorf("the next epoch is %d", next.Epoch())
				}
			})
		})
	}
}
