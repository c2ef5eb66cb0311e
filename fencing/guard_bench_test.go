package fencing_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

// benchBoth runs f on both handles in alternating rounds, so that a noisy machine
// moves both sides, and reports the median time of each and the median of the
// rounds' ratios.
func benchBoth(b *testing.B, rows int, f func(b *testing.B, db *sql.DB)) {
	both := handles(b)
	for _, db := range both {
		mustExec(b, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v TEXT)")
		mustExec(b, db, fmt.Sprintf(`INSERT INTO t(k, v) WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < %d)
			SELECT 'key' || i, 'some value of a usual length ' || i FROM r WHERE %d > 0`, rows, rows))
		f(b, db)
	}
	var plain, guarded, ratios []float64
	for b.Loop() {
		p := timed(b, both["plain"], f)
		g := timed(b, both["guarded"], f)
		// Each side is second as often as first.
		g += timed(b, both["guarded"], f)
		p += timed(b, both["plain"], f)
		plain, guarded, ratios = append(plain, p), append(guarded, g), append(ratios, g/p)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(plain), "plain-ns")
	b.ReportMetric(median(guarded), "guarded-ns")
	b.ReportMetric(median(ratios), "ratio")
}

func timed(b *testing.B, db *sql.DB, f func(b *testing.B, db *sql.DB)) float64 {
	start := time.Now()
	f(b, db)
	return float64(time.Since(start).Nanoseconds())
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func BenchmarkInsert(b *testing.B) {
	benchBoth(b, 0, func(b *testing.B, db *sql.DB) {
		mustExec(b, db, "INSERT INTO t(v) VALUES (?)", "some value of a usual length")
	})
}

func BenchmarkTx100(b *testing.B) {
	benchBoth(b, 0, func(b *testing.B, db *sql.DB) {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for range 100 {
			mustExec(b, tx, "INSERT INTO t(v) VALUES (?)", "some value of a usual length")
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkPointSelect(b *testing.B) {
	benchBoth(b, 10_000, func(b *testing.B, db *sql.DB) {
		for range 100 {
			var v string
			if err := db.QueryRow("SELECT v FROM t WHERE k = ?", "key777").Scan(&v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkScan100k(b *testing.B) {
	benchBoth(b, 100_000, func(b *testing.B, db *sql.DB) {
		rows, err := db.Query("SELECT id, k, v FROM t")
		if err != nil {
			b.Fatal(err)
		}
		var id int64
		var k, v string
		for rows.Next() {
			if err := rows.Scan(&id, &k, &v); err != nil {
				b.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			b.Fatal(err)
		}
	})
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
