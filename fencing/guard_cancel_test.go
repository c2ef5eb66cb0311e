package fencing

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

// lateEnd has query run on a connection where its context ends while the query runs, but
// so late that nothing of it is interrupted any more. The function returns what query returned.
func lateEnd(t *testing.T, c *conn, hook *func(), query func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	underWay := make(chan struct{})
	late := &lateInterrupt{c.raw.interrupt.(driver.Stmt), sync.OnceFunc(func() { close(underWay) }), make(chan struct{})}
	close(late.release)
	original := c.raw.interrupt
	c.raw.interrupt = late
	*hook = func() { cancel(); <-underWay }
	err := query(ctx)
	*hook = func() {}
	c.raw.interrupt = original
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose context ended says %v", err)
	}
	return err
}

func execOn(c *conn, ctx context.Context, query string) error {
	_, err := c.ExecContext(ctx, query, nil)
	return err
}

func queryOn(c *conn, ctx context.Context, query string) error {
	rows, err := c.QueryContext(ctx, query, nil)
	if err == nil {
		err = errors.Join(rows.Next(make([]driver.Value, len(rows.Columns()))), rows.Close())
	}
	return err
}

func countOn(t *testing.T, c *conn) int64 {
	t.Helper()
	rows, err := c.QueryContext(t.Context(), "SELECT count(*) FROM t", nil)
	if err != nil {
		t.Error(err)
		return -1
	}
	defer rows.Close()
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil {
		t.Error(err)
		return -1
	}
	return row[0].(int64)
}

// lateWrites are the ways to write one row by a statement that calls hook().
var lateWrites = map[string]func(c *conn, ctx context.Context) error{
	"Exec": func(c *conn, ctx context.Context) error {
		return execOn(c, ctx, "INSERT INTO t SELECT hook()")
	},
	"Query": func(c *conn, ctx context.Context) error {
		return queryOn(c, ctx, "INSERT INTO t SELECT hook() RETURNING v")
	},
	"Query of a WITH": func(c *conn, ctx context.Context) error {
		return queryOn(c, ctx, "WITH x(v) AS (SELECT hook()) INSERT INTO t SELECT v FROM x RETURNING v")
	},
	"Stmt": func(c *conn, ctx context.Context) error {
		s, err := c.PrepareContext(ctx, "INSERT INTO t SELECT hook() RETURNING v")
		if err != nil {
			return err
		}
		defer s.Close()
		rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, nil)
		if err == nil {
			err = rows.Close()
		}
		return err
	},
}

// A write that reports the end of its context has had no effect, or says that nobody knows.
func TestCancelledWriteIsNotCommittedInSilence(t *testing.T) {
	for name, write := range lateWrites {
		t.Run(name, func(t *testing.T) {
			withHook(t, &hookedGate{}, func(c *conn, hook *func()) {
				if err := execOn(c, t.Context(), "CREATE TABLE t(v)"); err != nil {
					t.Error(err)
				}
				err := lateEnd(t, c, hook, func(ctx context.Context) error { return write(c, ctx) })
				unknown := errors.Is(err, coord.CodeOutcomeUnknown)
				if n := countOn(t, c); n != 0 && !unknown || n == 0 && unknown {
					t.Errorf("%d rows are there, and the call said %v", n, err)
				}
				if err := execOn(c, t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
					t.Errorf("the call that followed: %v", err)
				}
			})
		})
	}
}

// Within a transaction, nobody commits what a statement did whose caller heard of an error.
func TestCancelledWriteTakesItsTransactionWithIt(t *testing.T) {
	for name, write := range lateWrites {
		t.Run(name, func(t *testing.T) {
			withHook(t, &hookedGate{}, func(c *conn, hook *func()) {
				if err := execOn(c, t.Context(), "CREATE TABLE t(v)"); err != nil {
					t.Error(err)
				}
				tx, err := c.BeginTx(t.Context(), driver.TxOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				_ = lateEnd(t, c, hook, func(ctx context.Context) error { return write(c, ctx) })
				if err := execOn(c, t.Context(), "INSERT INTO t VALUES (1)"); !errors.Is(err, ErrTxAborted) {
					t.Errorf("a later statement: %v", err)
				}
				if err := tx.Commit(); !errors.Is(err, ErrTxAborted) {
					t.Errorf("Commit: %v", err)
				}
				if n := countOn(t, c); n != 0 {
					t.Errorf("%d rows", n)
				}

				if err := execOn(c, t.Context(), "BEGIN"); err != nil {
					t.Error(err)
				}
				_ = lateEnd(t, c, hook, func(ctx context.Context) error { return write(c, ctx) })
				if err := execOn(c, t.Context(), "COMMIT"); !errors.Is(err, ErrTxAborted) {
					t.Errorf("COMMIT by text: %v", err)
				}
				if n := countOn(t, c); n != 0 {
					t.Errorf("%d rows after a transaction by text", n)
				}
			})
		})
	}
}

// A read whose context ended leaves its transaction alone, however late that was.
func TestCancelledReadLeavesItsTransaction(t *testing.T) {
	withHook(t, &hookedGate{}, func(c *conn, hook *func()) {
		if err := execOn(c, t.Context(), "CREATE TABLE t(v)"); err != nil {
			t.Error(err)
		}
		tx, err := c.BeginTx(t.Context(), driver.TxOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		if err := execOn(c, t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
			t.Error(err)
		}
		_ = lateEnd(t, c, hook, func(ctx context.Context) error {
			return queryOn(c, ctx, "WITH x(v) AS (SELECT hook()) SELECT v FROM x")
		})
		if err := tx.Commit(); err != nil {
			t.Errorf("Commit: %v", err)
		}
		if n := countOn(t, c); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// A write that does not look like one, and whose context ends after its commit, says that nobody
// knows.
func TestCancelledAfterTheCommitIsUnknown(t *testing.T) {
	gate := &hookedGate{}
	withHook(t, gate, func(c *conn, _ *func()) {
		if err := execOn(c, t.Context(), "CREATE TABLE t(v)"); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, ended := nextReader(c)
		inCommit := func() { cancel(); <-ended }
		gate.check.Store(&inCommit)
		before := c.scope.db.Commits()
		err := queryOn(c, ctx, "ANALYZE")
		gate.check.Store(nil)
		if n := c.scope.db.Commits() - before; n != 1 || !errors.Is(err, coord.CodeOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("%d commits, and the call said %v", n, err)
		}
	})
}

// A result set that writes is not committed by its closing if its context has ended: that is
// what its holder hears, from database/sql too.
func TestCancelledResultSetThatWritesIsNotCommitted(t *testing.T) {
	const insert = "WITH x(v) AS (VALUES (1), (2)) INSERT INTO t SELECT v FROM x RETURNING v"
	withHook(t, &hookedGate{}, func(c *conn, _ *func()) {
		if err := execOn(c, t.Context(), "CREATE TABLE t(v)"); err != nil {
			t.Error(err)
		}
		closeLate := func(steps int) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			rows, err := c.QueryContext(ctx, insert, nil)
			if err != nil {
				return err
			}
			for range steps {
				if err := rows.Next(make([]driver.Value, 1)); err != nil && err != io.EOF {
					t.Error(err)
				}
			}
			cancel()
			return rows.Close()
		}
		for steps := range 3 {
			if err := closeLate(steps); !errors.Is(err, context.Canceled) || errors.Is(err, coord.CodeOutcomeUnknown) {
				t.Errorf("after %d steps Close says %v", steps, err)
			}
		}
		if n := countOn(t, c); n != 0 {
			t.Errorf("%d rows", n)
		}
		if err := closeLate(3); err != nil { // which is past the end
			t.Error(err)
		}
		if n := countOn(t, c); n != 2 {
			t.Errorf("%d rows after a result set that was read to its end", n)
		}

		tx, err := c.BeginTx(t.Context(), driver.TxOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		if err := closeLate(1); !errors.Is(err, context.Canceled) {
			t.Errorf("in a transaction Close says %v", err)
		}
		if err := tx.Commit(); !errors.Is(err, ErrTxAborted) {
			t.Errorf("Commit: %v", err)
		}
		if n := countOn(t, c); n != 2 {
			t.Errorf("%d rows after the transaction", n)
		}
	})
}

func TestLooksLikeWrite(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                     false,
		"SELECT 1":                             false,
		"select replace(x, 'a', ';')":          false,
		"SELECT 1;":                            false,
		"INSERT INTO t VALUES (1)":             true,
		" /* a; */ -- b;\n update t SET v = 1": true,
		"SELECT 1; DELETE FROM t":              true,
		"SELECT '; DELETE'; SELECT [; DROP], \"; DROP\", `; DROP` -- ; DROP":                          false,
		"WITH x AS (SELECT 1) SELECT replace(v, 'INSERT', 'x'), update_at FROM x":                     false,
		"WITH x AS (SELECT (1)) VALUES (1)":                                                           false,
		"with recursive x(v) as (values (1)), insert_x as (select ')') insert into t select v from x": true,
		"WITH x AS (SELECT 1) REPLACE INTO t SELECT * FROM x":                                         true,
		"WITH x AS (SELECT 1":                            false,
		"WITH x AS (SELECT 1); INSERT INTO t VALUES (1)": true,
		"WITH 'x":           false,
		"SELECT 1; /* DROP": false,
		"EXPLAIN INSERT":    false,
	} {
		if got := looksLikeWrite(text); got != want {
			t.Errorf("%q looks like a write: %v", text, got)
		}
	}
}
