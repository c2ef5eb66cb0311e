package router_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

func (s rooms) use(o *router.Options) { o.Schema = s }

func book(t *testing.T, h *router.Handle, room string) {
	t.Helper()
	err := h.Run(t.Context(), func(ctx context.Context, v *router.View) error {
		_, err := v.DB().ExecContext(ctx, "INSERT INTO bookings(room) VALUES (?)", room)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func booked(t *testing.T, h *router.Handle) (n int) {
	t.Helper()
	if err := h.DB().QueryRow("SELECT count(*) FROM bookings").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// LE-3: a service's own schema is created, protected, copied, restored and migrated; a
// migrated database is not taken for what its copy holds.
func TestOwnSchema(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, newer := w.router("old", rooms{version: 1}.use), w.router("newer", rooms{version: 2}.use)
		h := old.open(key(t, 1))
		book(t, h, "attic")
		if _, err := h.DB().Exec("DROP TABLE owner"); !errors.Is(err, coord.CodeSQLRefused) {
			t.Errorf("dropping what the schema protects: %v", err)
		}
		if m, err := h.Snapshot(t.Context()); err != nil || m.Events != 1 {
			t.Errorf("manifest %+v, %v", m, err)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		h = newer.open(key(t, 1))
		if n := booked(t, h); n != 1 {
			t.Errorf("%d bookings after the restore", n)
		}
		if _, err := h.DB().Exec("SELECT guest FROM bookings"); err != nil {
			t.Errorf("not migrated: %v", err)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		newer.wantKinds("acquired", "restored", "snapshot(1)", "released(true)")
	})
}

// Trap 55: an older replica refuses a newer schema, though an older copy that it
// knows is there; it writes nothing and gives the lease back.
func TestNewerSchemaIsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, newer := w.router("old", rooms{version: 1}.use), w.router("newer", rooms{version: 2}.use)
		h := old.open(key(t, 1))
		book(t, h, "attic")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		h = newer.open(key(t, 1))
		book(t, h, "cellar")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := w.copies.calls()
		_, err := old.Open(t.Context(), key(t, 1))
		if !errors.Is(err, coord.CodeLedgerNewer) {
			t.Errorf("got %v, want %s", err, coord.CodeLedgerNewer)
		}
		if n := w.copies.calls() - before; n != 0 {
			t.Errorf("the older replica created %d objects", n)
		}
		if n := booked(t, newer.open(key(t, 1))); n != 2 {
			t.Errorf("%d bookings, want 2", n)
		}
	})
}

// An error of Verify without a code means that the file is not to be trusted; one
// of reading the file does not.
func TestOwnVerification(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		good := w.router("good", rooms{version: 1}.use)
		h := good.open(key(t, 1))
		book(t, h, "attic")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, unreadable := filepath.EvalSymlinks("/nowhere/at/all")
		for want, distrust := range map[coord.Code]error{
			coord.CodeRestoreInvalid: errors.New("more bookings than rooms"),
			coord.CodeSQLRefused:     &coord.Error{Code: coord.CodeSQLRefused},
			"":                       unreadable,
		} {
			bad := w.router("bad"+string(want), rooms{version: 1, distrust: distrust}.use)
			_, err := bad.Open(t.Context(), key(t, 1))
			if err == nil || coord.CodeOf(err) != want {
				t.Errorf("Verify said %v: Open got %v, want code %q", distrust, err, want)
			}
		}
		if n := booked(t, good.open(key(t, 1))); n != 1 {
			t.Errorf("%d bookings", n)
		}
	})
}
