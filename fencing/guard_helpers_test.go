package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

var bg = context.Background()

// A testGate is open until told otherwise.
type testGate struct {
	calls  atomic.Int64
	refuse atomic.Int64 // every call from this one on, counted from 1; 0 for none
	why    error
}

func newTestGate() *testGate {
	return &testGate{why: &coord.FencedError{Epoch: 7, Reason: coord.FenceExpired}}
}

func (g *testGate) Check() error {
	n := g.calls.Add(1)
	if from := g.refuse.Load(); from > 0 && n >= from {
		return g.why
	}
	return nil
}

func (g *testGate) close() { g.refuse.Store(1) }
func (g *testGate) open()  { g.refuse.Store(0) }

// closeAfter lets n more calls pass.
func (g *testGate) closeAfter(n int64) { g.refuse.Store(g.calls.Load() + n + 1) }

func openGuarded(t testing.TB, gate fencing.Gate, opts *fencing.DatabaseOptions) *fencing.Database {
	t.Helper()
	if opts == nil {
		opts = &fencing.DatabaseOptions{}
	}
	opts.Create = true
	d, err := fencing.OpenDatabase(bg, filepath.Join(t.TempDir(), "ledger.db"), gate, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func mustExec(t testing.TB, db execer, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(bg, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func count(t testing.TB, db execer, table string) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(bg, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatalf("count %s: %v", table, err)
	}
	return n
}

func wantCode(t testing.TB, what string, err error, code coord.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

func wantGateError(t testing.TB, what string, err error) {
	t.Helper()
	var fenced *coord.FencedError
	if !errors.As(err, &fenced) {
		t.Errorf("%s: got %v, want a FencedError", what, err)
	}
}

func filesIn(t testing.TB, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}
