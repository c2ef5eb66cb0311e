package compat

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
)

// A guarded is a database behind a real lease, on a clock that the test moves.
type guarded struct {
	*sql.DB
	lease *fencing.Lease
	clock *coordtest.Clock
}

func open(t *testing.T) guarded {
	t.Helper()
	key, err := coord.NewKey("compat", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	clock := &coordtest.Clock{}
	lease, err := fencing.Acquire(t.Context(), memlease.New(clock), key, "compat", fencing.LeaseOptions{
		TTL: 10 * time.Second, Margin: 2 * time.Second, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := fencing.OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), lease, &fencing.DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return guarded{DB: d.DB(), lease: lease, clock: clock}
}

// wantFenced lets the fence pass, wants every one of calls refused with the type of
// the guard's error intact, and has all of them work again after a renewal.
func (g guarded) wantFenced(t *testing.T, calls map[string]func(context.Context) error) {
	t.Helper()
	g.clock.Advance(g.lease.Remaining())
	for name, call := range calls {
		var fenced *coord.FencedError
		if err := call(t.Context()); !errors.As(err, &fenced) {
			t.Errorf("%s behind the fence: %v, want a FencedError", name, err)
		}
	}
	if err := g.lease.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s after the renewal: %v", name, err)
		}
	}
}
