package fencing

import (
	"context"
	"database/sql/driver"
	"errors"
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
	"Query that does not look like it": func(c *conn, ctx context.Context) error {
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
		err := queryOn(c, ctx, "WITH x(v) AS (VALUES (1)) INSERT INTO t SELECT v FROM x")
		gate.check.Store(nil)
		if n := countOn(t, c); n != 1 || !errors.Is(err, coord.CodeOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("%d rows are there, and the call said %v", n, err)
		}
	})
}
