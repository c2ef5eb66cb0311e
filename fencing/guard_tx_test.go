package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// underWay is time enough for a statement to be running when its context ends, which is
// what ends a transaction: a statement that was never begun ends none.
const underWay = 200 * time.Millisecond

// Trap 42: what ends the transaction inside SQLite ends it for the caller.
func TestGuardTransactionEndedBySQLite(t *testing.T) {
	slow := "INSERT INTO t(v) WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r) SELECT i FROM r"
	ends := map[string]func(tx *sql.Tx){
		"cancelled statement": func(tx *sql.Tx) {
			ctx, cancel := context.WithTimeout(bg, underWay)
			defer cancel()
			if _, err := tx.ExecContext(ctx, slow); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cancelled: %v", err)
			}
		},
		"cancelled query": func(tx *sql.Tx) {
			ctx, cancel := context.WithTimeout(bg, underWay)
			defer cancel()
			if err := scanErr(tx.QueryRowContext(ctx, slow+" RETURNING id")); err == nil {
				t.Error("not cancelled")
			}
		},
		"OR ROLLBACK": func(tx *sql.Tx) {
			if _, err := tx.Exec("INSERT OR ROLLBACK INTO t(id, v) VALUES (1, 'again')"); err == nil {
				t.Error("no conflict")
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			d := openGuarded(t, newTestGate(), nil)
			mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
			mustExec(t, d.DB(), "INSERT INTO t(id, v) VALUES (1, 'first')")
			for _, last := range []string{"commit", "rollback"} {
				tx, err := d.DB().Begin()
				if err != nil {
					t.Fatal(err)
				}
				mustExec(t, tx, insertRow)
				end(tx)
				if _, err := tx.Exec(insertRow); !errors.Is(err, fencing.ErrTxAborted) {
					t.Errorf("statement after the end: %v", err)
				}
				if last == "rollback" {
					if err := tx.Rollback(); err != nil {
						t.Errorf("Rollback: %v", err)
					}
				} else if err := tx.Commit(); !errors.Is(err, fencing.ErrTxAborted) {
					t.Errorf("Commit: %v", err)
				}
				if n := count(t, d.DB(), "t"); n != 1 {
					t.Errorf("%d rows survived the rollback", n-1)
				}
			}
		})
	}
}

// Trap 42, for a transaction that began by text: what SQLite ended is over for its
// caller, until the caller ends it too.
func TestGuardTextTransactionEndedBySQLite(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), "INSERT INTO t(id, v) VALUES (1, 'first')")
	for name, end := range map[string]func(ctx context.Context, c *sql.Conn) error{
		"cancelled statement": func(ctx context.Context, c *sql.Conn) error {
			return noResult(c.ExecContext(ctx, "INSERT INTO t(v) "+endless))
		},
		"cancelled query": func(ctx context.Context, c *sql.Conn) error {
			return scanErr(c.QueryRowContext(ctx, "INSERT INTO t(v) "+endless+" RETURNING id"))
		},
		"OR ROLLBACK": func(_ context.Context, c *sql.Conn) error {
			return noResult(c.ExecContext(bg, "INSERT OR ROLLBACK INTO t(id, v) VALUES (1, 'again')"))
		},
	} {
		for _, begin := range []string{"BEGIN", " /* c */ begin immediate", "SAVEPOINT a"} {
			for _, last := range []string{"COMMIT", "-- c\nEND", "ROLLBACK", "rollback transaction;"} {
				err := withConn(d.DB(), func(c *sql.Conn) error {
					mustExec(t, c, begin)
					mustExec(t, c, insertRow)
					ctx, cancel := context.WithTimeout(bg, underWay)
					defer cancel()
					if end(ctx, c) == nil {
						t.Errorf("%s ended well", name)
					}
					for _, after := range []string{insertRow, "SELECT 1", "SAVEPOINT b", "ROLLBACK TO a"} {
						if _, err := c.ExecContext(bg, after); !errors.Is(err, fencing.ErrTxAborted) {
							t.Errorf("%s after %s: %v", after, name, err)
						}
					}
					if _, err := c.ExecContext(bg, last); err == nil || strings.HasPrefix(last, "C") && !errors.Is(err, fencing.ErrTxAborted) {
						t.Errorf("%s after %s: %v", last, name, err)
					}
					return scanErr(c.QueryRowContext(bg, "SELECT 1"))
				})
				if err != nil {
					t.Errorf("after %s of a transaction that %s ended: %v", last, name, err)
				}
				if n := count(t, d.DB(), "t"); n != 1 {
					t.Fatalf("%s, %s, %s: %d rows survived the rollback", begin, name, last, n-1)
				}
			}
		}
	}
}

// A transaction that BeginTx began cannot be ended, or another one begun in it, by
// text; savepoints can.
func TestGuardTransactionIsNotEndedByText(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	conn, err := d.DB().Conn(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	compiled, err := conn.PrepareContext(bg, "COMMIT")
	if err != nil {
		t.Fatal(err)
	}
	defer compiled.Close()
	tx, err := conn.BeginTx(bg, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, insertRow)
	for _, text := range []string{"COMMIT", "END", "ROLLBACK", "BEGIN", "/* */ -- x\n; commit", "SELECT 1; COMMIT", "rollback transaction"} {
		wantCode(t, text, noResult(tx.Exec(text)), coord.CodeSQLRefused)
		wantCode(t, text+" by Query", drain(tx.Query(text)), coord.CodeSQLRefused)
	}
	wantCode(t, "compiled before", noResult(tx.Stmt(compiled).Exec()), coord.CodeSQLRefused)
	mustExec(t, tx, "SAVEPOINT a; "+insertRow)
	mustExec(t, tx, "ROLLBACK TRANSACTION TO a; RELEASE a")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d.DB(), "t"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// A cancellingGate ends a context while it answers, which is before SQLite has begun.
type cancellingGate struct {
	*testGate
	cancel atomic.Pointer[context.CancelFunc]
}

func (g *cancellingGate) Check() error {
	if cancel := g.cancel.Swap(nil); cancel != nil {
		(*cancel)()
	}
	return g.testGate.Check()
}

// Trap 43: a call whose context ends before SQLite has begun ends too, and what
// follows on the connection is not hit by the interrupt.
func TestGuardCancelledBeforeItBegan(t *testing.T) {
	gate := &cancellingGate{testGate: newTestGate()}
	d := openGuarded(t, gate, nil)
	d.DB().SetMaxOpenConns(1)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	conn, err := d.DB().Conn(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	write, err := conn.PrepareContext(bg, "INSERT INTO t(v) "+endless)
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	read, err := conn.PrepareContext(bg, endless)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for what, call := range map[string]func(ctx context.Context) error{
		"Exec":       func(ctx context.Context) error { return noResult(conn.ExecContext(ctx, "INSERT INTO t(v) "+endless)) },
		"Query":      func(ctx context.Context) error { return scanErr(conn.QueryRowContext(ctx, endless)) },
		"Stmt.Exec":  func(ctx context.Context) error { return noResult(write.ExecContext(ctx)) },
		"Stmt.Query": func(ctx context.Context) error { return scanErr(read.QueryRowContext(ctx)) },
	} {
		for range 20 {
			ctx, cancel := context.WithCancel(bg)
			gate.cancel.Store(&cancel)
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
			if n := count(t, conn, "t"); n != 0 {
				t.Fatalf("%s: %d rows", what, n)
			}
		}
	}
}

// A read is ended in the middle of a step that is not its first, and what its
// transaction does meanwhile is not.
func TestGuardCancelledBetweenRows(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	// The second row never comes.
	late := "SELECT 1 UNION ALL SELECT * FROM (" + endless + ")"
	for i := range 20 {
		ctx, cancel := context.WithCancel(bg)
		rows, err := tx.QueryContext(ctx, late)
		if err != nil || !rows.Next() {
			t.Fatal(err, rows.Err())
		}
		if i%2 == 0 {
			go cancel()
		} else {
			cancel()
			mustExec(t, tx, insertRow)
		}
		if rows.Next() || !errors.Is(rows.Err(), context.Canceled) {
			t.Errorf("after the context ended: %v", rows.Err())
		}
		rows.Close()
		mustExec(t, tx, insertRow)
		cancel()
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d.DB(), "t"); n != 30 {
		t.Errorf("%d rows, want 30", n)
	}
}

// SQLite's interrupt is the connection's: a result set that is open beside the call whose
// context ended ends too, with an error rather than as if it had no more rows, and until it
// is closed other calls are refused. The transaction goes on, with what was acknowledged.
func TestGuardCancelledBesideAnOpenResultSet(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	mustExec(t, tx, insertRow)
	outer, err := tx.Query("SELECT 1 UNION ALL SELECT 2")
	if err != nil || !outer.Next() {
		t.Fatal(err)
	}
	defer outer.Close()
	ctx, cancel := context.WithTimeout(bg, underWay)
	defer cancel()
	if err := scanErr(tx.QueryRowContext(ctx, endless)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call whose context ended: %v", err)
	}
	acknowledged := 1
	if _, err := tx.Exec(insertRow); err == nil {
		acknowledged++
	}
	rows := 1
	for outer.Next() {
		rows++
	}
	if rows < 2 && outer.Err() == nil {
		t.Error("a result set ended early without an error")
	}
	if err := outer.Close(); err != nil {
		t.Error(err)
	}
	mustExec(t, tx, insertRow)
	acknowledged++
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d.DB(), "t"); n != acknowledged {
		t.Errorf("%d rows, %d were acknowledged", n, acknowledged)
	}
}

// A failed statement and a savepoint leave the transaction usable.
func TestGuardTransactionGoesOn(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, insertRow)
	for _, wrong := range []string{"INSERT INTO t(id) VALUES (1)", "SELEC 1", "ATTACH ':memory:' AS m"} {
		if _, err := tx.Exec(wrong); err == nil {
			t.Errorf("%s succeeded", wrong)
		}
	}
	mustExec(t, tx, "SAVEPOINT a")
	mustExec(t, tx, insertRow)
	mustExec(t, tx, "ROLLBACK TO a")
	mustExec(t, tx, insertRow)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d.DB(), "t"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
