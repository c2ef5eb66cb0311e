package fencing_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

// A clockGate costs what a Lease costs: a reading of the host's clock per Check, of
// the quick one per CheckRead.
type clockGate struct{ clock coord.Clock }

func (g clockGate) Check() error {
	if g.clock.Now() < 0 {
		return coord.CodeFenced
	}
	return nil
}

func (g clockGate) CheckRead() error {
	if g.clock.Quick() < 0 {
		return coord.CodeFenced
	}
	return nil
}

// handles opens the same empty database twice: plainly, with the pragmas of a
// guarded one, and guarded.
func handles(tb testing.TB) map[string]*sql.DB {
	tb.Helper()
	uri, err := sqliteuri.File(filepath.Join(tb.TempDir(), "plain.db"),
		"_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_busy_timeout=5000&_txlock=immediate&_stmt_cache_size=32")
	if err != nil {
		tb.Fatal(err)
	}
	plain, err := sql.Open("sqlite3", uri)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { plain.Close() })
	return map[string]*sql.DB{"plain": plain, "guarded": openGuarded(tb, clockGate{coord.SystemClock()}, nil).DB()}
}

func BenchmarkScoped(b *testing.B) {
	d := openGuarded(b, clockGate{coord.SystemClock()}, nil)
	b.ReportAllocs()
	for b.Loop() {
		db := d.Scoped(nil)
		if err := db.Ping(); err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
