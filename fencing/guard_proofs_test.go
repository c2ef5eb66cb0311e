package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// A pausingGate stops the first caller after it was armed until it is resumed.
type pausingGate struct {
	*testGate
	armed           atomic.Bool
	entered, resume chan struct{}
}

func (g *pausingGate) Check() error {
	if g.armed.CompareAndSwap(true, false) {
		close(g.entered)
		<-g.resume
	}
	return g.testGate.Check()
}

// writes is every way to commit one row into t.
var writes = map[string]func(db *sql.DB) error{
	"Exec": func(db *sql.DB) error { return noResult(db.Exec(insertRow)) },
	"Exec with a cancellable context": func(db *sql.DB) error {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		return noResult(db.ExecContext(ctx, "INSERT INTO t(v) VALUES (?)", "x"))
	},
	"Exec of several statements": func(db *sql.DB) error { return noResult(db.Exec("SELECT 1; " + insertRow + "; SELECT 2")) },
	"QueryRow RETURNING":         func(db *sql.DB) error { return scanErr(db.QueryRow(insertRow + " RETURNING id")) },
	"Query RETURNING, unread":    func(db *sql.DB) error { return closing(db.Query(insertRow + ", ('y') RETURNING id")) },
	"Query of several statements": func(db *sql.DB) error {
		return scanErr(db.QueryRow(insertRow + " RETURNING id; SELECT 1"))
	},
	"Stmt": func(db *sql.DB) error {
		s, err := db.Prepare(insertRow)
		if err != nil {
			return err
		}
		defer s.Close()
		return noResult(s.Exec())
	},
	"Tx": func(db *sql.DB) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		if _, err := tx.Exec(insertRow); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	},
	"transaction by text": func(db *sql.DB) error {
		return withConn(db, func(c *sql.Conn) error {
			for _, q := range []string{"BEGIN IMMEDIATE", insertRow, "COMMIT"} {
				if _, err := c.ExecContext(bg, q); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"savepoint by text": func(db *sql.DB) error {
		return withConn(db, func(c *sql.Conn) error {
			_, err := c.ExecContext(bg, "SAVEPOINT a; "+insertRow+"; RELEASE a")
			return err
		})
	},
	"Raw": func(db *sql.DB) error {
		return withConn(db, func(c *sql.Conn) error {
			return c.Raw(func(dc any) error {
				_, err := dc.(driver.ExecerContext).ExecContext(bg, insertRow, nil)
				return err
			})
		})
	},
}

// GU-2, GU-3: the gate closes between any two of its answers. Whatever the caller
// hears must be true: success and "outcome unknown" mean committed, fenced means
// not committed, and an acknowledgement means that the last answer was yes.
func TestGuardProofs(t *testing.T) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			gate := newTestGate()
			d := openGuarded(t, gate, nil)
			mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
			seen := map[string]bool{}
			for n := int64(0); ; n++ {
				gate.open()
				before, commits := count(t, d.DB(), "t"), d.Commits()
				gate.closeAfter(n)
				refused := gate.refuse.Load()
				err := write(d.DB())
				reached := gate.calls.Load() >= refused
				gate.open()
				committed := count(t, d.DB(), "t") > before
				counted := d.Commits() > commits
				var fenced *coord.FencedError
				switch {
				case err == nil:
					seen["acknowledged"] = true
					if reached || !committed {
						t.Fatalf("after %d answers: acknowledged; gate refused: %v, committed: %v", n, reached, committed)
					}
				case errors.Is(err, coord.CodeOutcomeUnknown):
					seen["unknown"] = true
					if !committed {
						t.Fatalf("after %d answers: %v, but nothing was committed", n, err)
					}
				case errors.As(err, &fenced):
					seen["fenced"] = true
					if committed {
						t.Fatalf("after %d answers: %v, but the row is there", n, err)
					}
				default:
					t.Fatalf("after %d answers: %v", n, err)
				}
				if committed && !counted {
					t.Fatalf("after %d answers: Commits did not count the write", n)
				}
				if err == nil {
					break
				}
			}
			for _, outcome := range []string{"acknowledged", "unknown", "fenced"} {
				if !seen[outcome] {
					t.Errorf("no run ended %s", outcome)
				}
			}
		})
	}
}

// Trap 2: a pause inside the commit hook, and after the commit, while the lease
// ends.
func TestGuardPausedInCommit(t *testing.T) {
	for _, c := range []struct {
		name string
		pass int64 // answers before the pause
		code coord.Code
		rows int
	}{
		{"between check and commit", 1, coord.CodeFenced, 0},
		{"between commit and acknowledgement", 2, coord.CodeOutcomeUnknown, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := &countdownGate{testGate: newTestGate(), entered: make(chan struct{}), resume: make(chan struct{})}
			d := openGuarded(t, gate, nil)
			mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
			gate.pauseAt.Store(gate.calls.Load() + c.pass + 1)
			done := make(chan error)
			go func() { done <- noResult(d.DB().Exec(insertRow)) }()
			<-gate.entered
			gate.close()
			close(gate.resume)
			wantCode(t, "Exec", <-done, c.code)
			gate.open()
			if n := count(t, d.DB(), "t"); n != c.rows {
				t.Errorf("%d rows, want %d", n, c.rows)
			}
		})
	}
}

type countdownGate struct {
	*testGate
	pauseAt         atomic.Int64
	entered, resume chan struct{}
}

func (g *countdownGate) Check() error {
	if at := g.pauseAt.Load(); at > 0 && g.calls.Load()+1 == at {
		close(g.entered)
		<-g.resume
	}
	return g.testGate.Check()
}

// GU-4: statements made before the fence work after a renewal, and a transaction
// that was refused at its commit left nothing open.
func TestGuardCommit(t *testing.T) {
	gate := newTestGate()
	d := openGuarded(t, gate, nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, insertRow)
	gate.close()
	wantGateError(t, "Commit", tx.Commit())
	gate.open()
	if n := count(t, d.DB(), "t"); n != 0 {
		t.Errorf("%d rows after a refused commit", n)
	}
	mustExec(t, d.DB(), insertRow) // would be BUSY if the transaction were open
}

// Trap 42: what ends the transaction inside SQLite ends it for the caller.
func TestGuardTransactionEndedBySQLite(t *testing.T) {
	slow := "INSERT INTO t(v) WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r) SELECT i FROM r"
	ends := map[string]func(tx *sql.Tx){
		"cancelled statement": func(tx *sql.Tx) {
			ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
			defer cancel()
			if _, err := tx.ExecContext(ctx, slow); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cancelled: %v", err)
			}
		},
		"cancelled query": func(tx *sql.Tx) {
			ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
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
					ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
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

// Trap 43: a connection comes back to the pool without what was left open on it.
func TestGuardPoolGetsCleanConnections(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	db := d.DB()
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	leave := map[string]func(c *sql.Conn) error{
		"BEGIN by text": func(c *sql.Conn) error { return noResult(c.ExecContext(bg, "BEGIN IMMEDIATE; "+insertRow)) },
		"SAVEPOINT":     func(c *sql.Conn) error { return noResult(c.ExecContext(bg, "SAVEPOINT a; "+insertRow)) },
		"transaction through Raw": func(c *sql.Conn) error {
			return c.Raw(func(dc any) error {
				_, err := dc.(driver.ConnBeginTx).BeginTx(bg, driver.TxOptions{})
				if err == nil {
					_, err = dc.(driver.ExecerContext).ExecContext(bg, insertRow, nil)
				}
				return err
			})
		},
		"rows through Raw": func(c *sql.Conn) error {
			return c.Raw(func(dc any) error {
				_, err := dc.(driver.QueryerContext).QueryContext(bg, "SELECT 1 UNION SELECT 2", nil)
				return err
			})
		},
		"temporary table that shadows": func(c *sql.Conn) error {
			return noResult(c.ExecContext(bg, "CREATE TEMP TABLE t(id INTEGER PRIMARY KEY, v TEXT); "+insertRow))
		},
		"table in temp that shadows": func(c *sql.Conn) error {
			return noResult(c.ExecContext(bg, "CREATE TABLE temp.t(id INTEGER PRIMARY KEY, v TEXT); "+insertRow))
		},
	}
	for name, f := range leave {
		if err := withConn(db, f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		before := count(t, db, "main.t")
		mustExec(t, db, insertRow)
		if n := count(t, db, "main.t"); before != 0 || n != 1 {
			t.Errorf("%s: %d rows were left, %d after one insert", name, before, n)
		}
		mustExec(t, db, "DELETE FROM main.t")
	}
}

func TestSQLErrorOf(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT NOT NULL)")
	for query, want := range map[string]bool{
		"SELEC 1":                         true,
		"SELECT * FROM nowhere":           true,
		"INSERT INTO t(v) VALUES (NULL)":  true,
		"SELECT ?":                        true,
		"INSERT INTO t(id) VALUES ('no')": true,
		"PRAGMA journal_mode = DELETE":    false,
	} {
		_, err := d.DB().Exec(query)
		message, ok := fencing.SQLErrorOf(fmt.Errorf("run: %w", err))
		if ok != want || ok != (message != "") {
			t.Errorf("%s: %v is an error of the SQL: %v %q", query, err, ok, message)
		}
	}
	if _, ok := fencing.SQLErrorOf(nil); ok {
		t.Error("nil is an error of the SQL")
	}
}
