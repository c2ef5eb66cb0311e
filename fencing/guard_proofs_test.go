package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

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
