package fencing_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// FuzzStatement: no text leaves the file, changes a setting that copies depend on, or
// commits what a transaction of BeginTx holds.
func FuzzStatement(f *testing.F) {
	for _, text := range refusedStatements("/nowhere") {
		f.Add(text)
	}
	for _, text := range []string{
		"COMMIT", "/**/;--\n end", "ROLLBACK TO a", "SAVEPOINT a; RELEASE a", "rollback transaction", "BEGIN; COMMIT",
		"EXPLAIN COMMIT", "INSERT OR ROLLBACK INTO t(id) VALUES (1)", "SELECT 1; /*", "PRAGMA foreign_keys=0; SELEC", "--", "/*",
	} {
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "ledger.db")
	d, err := fencing.OpenDatabase(bg, path, newTestGate(), &fencing.DatabaseOptions{Create: true, MaxBytes: 8 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	mustExec(f, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	f.Fuzz(func(t *testing.T, text string) {
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		defer cancel()
		tx, err := d.DB().BeginTx(ctx, nil)
		if err != nil {
			return // the time was up
		}
		before := d.Commits()
		_, _ = tx.ExecContext(ctx, text)
		_ = drain(tx.QueryContext(ctx, text))
		if n := d.Commits(); n != before {
			t.Errorf("%q committed what a transaction held", text)
		}
		_ = tx.Rollback()
		_, err = d.DB().ExecContext(ctx, text)
		if errors.Is(err, coord.CodeFenced) {
			t.Errorf("%q: %v behind a gate that is open", text, err)
		}
		for pragma, want := range map[string]string{"journal_mode": "wal", "locking_mode": "normal", "user_version": "0", "application_id": "0", "query_only": "0"} {
			var got string
			if err := d.DB().QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("after %q PRAGMA %s is %q (%v)", text, pragma, got, err)
			}
		}
		for name := range filesIn(t, filepath.Dir(path)) {
			if !strings.HasPrefix(name, "ledger.db") {
				t.Errorf("%q made a file %s", text, name)
			}
		}
	})
}
