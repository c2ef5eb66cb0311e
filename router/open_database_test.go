package router_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
	"github.com/leaseholddb/leasehold/test/filelocks"
)

// Trap 47: nothing that is done to an open tenant drops a lock of its file.
func TestLocksOfAnOpenTenantSurvive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.router("a"), w.router("b")
		h := a.open(key(t, 1))
		mustAdd(t, h, "one")
		kept, err := h.DB().Conn(t.Context()) // the last connection to go takes the locks along
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		path := filepath.Join(a.TenantRoot(key(t, 1)), "ledger.db")
		before := filelocks.Of(t, path)
		if before == "" {
			t.Fatal("an open tenant holds no lock")
		}
		for name, do := range map[string]func() error{
			"run":      func() error { return add(t.Context(), h, "two") },
			"snapshot": func() error { _, err := h.Snapshot(t.Context()); return err },
			"read":     func() error { _, err := h.Ledger().Read(t.Context(), 0, 0); return err },
			"query":    func() error { return h.DB().QueryRow("SELECT count(*) FROM events").Scan(new(int)) },
			"stats":    func() error { _, err := h.Stats(); return err },
			"open":     func() error { _, err := a.Open(t.Context(), key(t, 1)); return err },
			"existing": func() error { _, err := a.OpenExisting(t.Context(), key(t, 1)); return err },
			"other": func() error {
				_, err := b.Open(t.Context(), key(t, 1))
				if errors.Is(err, coord.CodeLeaseHeld) {
					return nil
				}
				return fmt.Errorf("got %w, want LEASE_HELD", err)
			},
			"failed handoff": func() error {
				w.copies.fail(&coord.Error{Code: coord.CodeCopyStoreUnavailable})
				defer w.copies.fail(nil)
				if err := add(t.Context(), h, "three"); err != nil {
					return err
				}
				if err := h.Handoff(t.Context()); !errors.Is(err, coord.CodeCopyStoreUnavailable) {
					return fmt.Errorf("Handoff: %w", err)
				}
				return nil
			},
		} {
			if err := do(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if after := filelocks.Of(t, path); after != before {
				t.Errorf("%s: locks before:\n%s\nafter:\n%s", name, before, after)
			}
		}
	})
}

// Trap 57: a read that is left open makes the log grow, which shows; a handoff waits for
// it no longer than a drain may take if it runs inside Run, and not at all outside.
func TestReadLeftOpen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.router("a").open(key(t, 1))
		mustAdd(t, h, "one")
		mustAdd(t, h, "two")
		rows, err := h.DB().Query("SELECT seq FROM events")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		before, err := h.Stats()
		if err != nil {
			t.Fatal(err)
		}
		err = h.Run(t.Context(), func(ctx context.Context, v *router.View) error {
			for range 30 {
				if _, err := v.DB().ExecContext(ctx, "CREATE TABLE IF NOT EXISTS pad(b); INSERT INTO pad VALUES (zeroblob(500000)); DELETE FROM pad"); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if after, err := h.Stats(); err != nil || after.WALBytes < before.WALBytes+10<<20 || after.Connections < 2 {
			t.Errorf("before %+v, after %+v (%v): the growth does not show", before, after, err)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rows.Next() || rows.Err() == nil {
			t.Error("the read outlived the handoff")
		}
	})
}
