package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

const plainDriver = "mattn/go-sqlite3"

// A guardPair is the same database twice: plain, with the pragmas of a guarded one,
// and guarded by a real lease.
type guardPair struct {
	ctx            context.Context
	plain, guarded *sql.DB
	close          func() error
}

func benchGuard(ctx context.Context, b *bench) (err error) {
	p, err := newGuardPair(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, m := range []struct {
		name  string
		limit float64
		clock stopwatch
		work  func(ctx context.Context, db *sql.DB) error
	}{
		{"autocommit insert", 1.08, wallTime, insertAlone},
		{"transaction of 100 inserts", 1.03, wallTime, insertTogether},
		{"point select by key", 1.10, cpuTime, pointSelect},
		{"scan of 100,000 rows", 1.08, cpuTime, scan},
	} {
		ours, reference := p.side("guarded", p.guarded, m.clock, m.work), p.side(plainDriver, p.plain, m.clock, m.work)
		measure := b.ratio
		if m.clock.note == cpuTime.note {
			measure = b.closeRatio
		}
		if err := measure("guard: "+m.name, m.limit, ours, reference); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return guardAllocs(b, p)
}

func newGuardPair(ctx context.Context) (_ *guardPair, err error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	uri, err := sqliteuri.File(filepath.Join(dir, "plain.db"),
		"_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_busy_timeout=5000&_txlock=immediate&_stmt_cache_size=32")
	if err != nil {
		return nil, err
	}
	plain, err := sql.Open("sqlite3", uri)
	if err != nil {
		return nil, err
	}
	key, err := coord.NewKey("bench", "t-00000000000000000000000000000001")
	if err != nil {
		return nil, err
	}
	lease, err := fencing.Acquire(ctx, memlease.New(coord.SystemClock()), key, "bench", fencing.LeaseOptions{TTL: coord.MaxTTL})
	if err != nil {
		return nil, err
	}
	guarded, err := fencing.OpenDatabase(ctx, filepath.Join(dir, "guarded.db"), lease, &fencing.DatabaseOptions{Create: true})
	if err != nil {
		return nil, err
	}
	p := &guardPair{ctx: ctx, plain: plain, guarded: guarded.DB(), close: func() error {
		return errors.Join(plain.Close(), guarded.Close(), os.RemoveAll(dir))
	}}
	for _, db := range []*sql.DB{p.plain, p.guarded} {
		if err := fill(ctx, db); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

func fill(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		"CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v TEXT)",
		"CREATE TABLE log(id INTEGER PRIMARY KEY, v TEXT)",
		`INSERT INTO t(k, v) WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 100000)
			SELECT 'key' || i, 'some value of a usual length ' || i FROM r`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (p *guardPair) side(what string, db *sql.DB, clock stopwatch, work func(context.Context, *sql.DB) error) side {
	return side{what: what + clock.note, run: func() (time.Duration, error) {
		began, err := clock.read()
		if err == nil {
			err = work(p.ctx, db)
		}
		if err != nil {
			return 0, err
		}
		ended, err := clock.read()
		return ended - began, err
	}}
}

// A stopwatch says what of a run counts. Writes wait for the disk; what only
// computes is measured in the time of the processor, which others on the machine do
// not add to.
type stopwatch struct {
	note string
	read func() (time.Duration, error)
}

var (
	epoch    = time.Now()
	wallTime = stopwatch{"", func() (time.Duration, error) { return time.Since(epoch), nil }}
	cpuTime  = stopwatch{" (CPU)", func() (time.Duration, error) {
		var u syscall.Rusage
		err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
	}}
)

const insertSQL = "INSERT INTO log(v) VALUES (?)"

func insertAlone(ctx context.Context, db *sql.DB) error {
	for range 50 {
		if _, err := db.ExecContext(ctx, insertSQL, "some value of a usual length"); err != nil {
			return err
		}
	}
	return nil
}

func insertTogether(ctx context.Context, db *sql.DB) error {
	for range 20 {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for range 100 {
			if _, err := tx.ExecContext(ctx, insertSQL, "some value of a usual length"); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func pointSelect(ctx context.Context, db *sql.DB) error {
	for i := range 2000 {
		var v string
		if err := db.QueryRowContext(ctx, "SELECT v FROM t WHERE k = ?", fmt.Sprintf("key%d", i+1)).Scan(&v); err != nil {
			return err
		}
	}
	return nil
}

func scan(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT id, k, v FROM t")
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id int64
		var k, v string
		if err := rows.Scan(&id, &k, &v); err != nil {
			return err
		}
		n++
	}
	if n != 100_000 && rows.Err() == nil {
		return fmt.Errorf("%d rows", n)
	}
	return rows.Err()
}
