package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Every exported method of the types that database/sql hands out is in one of
// these: gated by a path below, cleanup that always works, or local, which never
// reaches the driver. A method that a later Go adds fails the test.
var decisions = map[string]string{
	"DB.Begin": "gated", "DB.BeginTx": "gated", "DB.Close": "cleanup", "DB.Conn": "gated",
	"DB.Driver": "local", "DB.Exec": "gated", "DB.ExecContext": "gated", "DB.Ping": "gated",
	"DB.PingContext": "gated", "DB.Prepare": "gated", "DB.PrepareContext": "gated",
	"DB.Query": "gated", "DB.QueryContext": "gated", "DB.QueryRow": "gated",
	"DB.QueryRowContext": "gated", "DB.SetConnMaxIdleTime": "local", "DB.SetConnMaxLifetime": "local",
	"DB.SetMaxIdleConns": "local", "DB.SetMaxOpenConns": "local", "DB.Stats": "local",

	"Conn.BeginTx": "gated", "Conn.Close": "cleanup", "Conn.ExecContext": "gated",
	"Conn.PingContext": "gated", "Conn.PrepareContext": "gated", "Conn.QueryContext": "gated",
	"Conn.QueryRowContext": "gated", "Conn.Raw": "gated",

	"Tx.Commit": "gated", "Tx.Exec": "gated", "Tx.ExecContext": "gated", "Tx.Prepare": "gated",
	"Tx.PrepareContext": "gated", "Tx.Query": "gated", "Tx.QueryContext": "gated",
	"Tx.QueryRow": "gated", "Tx.QueryRowContext": "gated", "Tx.Rollback": "cleanup",
	"Tx.Stmt": "gated", "Tx.StmtContext": "gated",

	"Stmt.Close": "cleanup", "Stmt.Exec": "gated", "Stmt.ExecContext": "gated", "Stmt.Query": "gated",
	"Stmt.QueryContext": "gated", "Stmt.QueryRow": "gated", "Stmt.QueryRowContext": "gated",

	"Rows.Close": "cleanup", "Rows.ColumnTypes": "local", "Rows.Columns": "local", "Rows.Err": "local",
	"Rows.Next": "gated", "Rows.NextResultSet": "local", "Rows.Scan": "local",
}

// held is one of each thing, taken while the gate was open.
type held struct {
	db   *sql.DB
	conn *sql.Conn
	tx   *sql.Tx
	stmt *sql.Stmt
	txs  *sql.Stmt
	rows *sql.Rows
}

const insertRow = "INSERT INTO t(v) VALUES ('x')"

func scanErr(row *sql.Row) error {
	var n int
	return row.Scan(&n)
}

func closing(rows *sql.Rows, err error) error {
	if err == nil {
		err = rows.Close()
	}
	return err
}

func noResult(_ sql.Result, err error) error { return err }

// gatedPaths calls one method each. Those of a transaction leave it open except
// Commit, which has a test of its own.
var gatedPaths = map[string]func(h *held) error{
	"DB.Begin": func(h *held) error { tx, err := h.db.Begin(); return rollback(tx, err) },
	"DB.BeginTx": func(h *held) error {
		tx, err := h.db.BeginTx(bg, &sql.TxOptions{ReadOnly: true})
		return rollback(tx, err)
	},
	"DB.Conn":            func(h *held) error { return withConn(h.db, func(c *sql.Conn) error { return c.PingContext(bg) }) },
	"DB.Exec":            func(h *held) error { return noResult(h.db.Exec("PRAGMA data_version")) },
	"DB.ExecContext":     func(h *held) error { return noResult(h.db.ExecContext(bg, "SELECT ?", 1)) },
	"DB.Ping":            func(h *held) error { return h.db.Ping() },
	"DB.PingContext":     func(h *held) error { return h.db.PingContext(bg) },
	"DB.Prepare":         func(h *held) error { return closeStmt(h.db.Prepare("SELECT 1")) },
	"DB.PrepareContext":  func(h *held) error { return closeStmt(h.db.PrepareContext(bg, "SELECT 1")) },
	"DB.Query":           func(h *held) error { return closing(h.db.Query("SELECT 1")) },
	"DB.QueryContext":    func(h *held) error { return closing(h.db.QueryContext(bg, "SELECT 1")) },
	"DB.QueryRow":        func(h *held) error { return scanErr(h.db.QueryRow("SELECT 1")) },
	"DB.QueryRowContext": func(h *held) error { return scanErr(h.db.QueryRowContext(bg, "SELECT 1")) },

	"Conn.BeginTx": func(h *held) error {
		tx, err := h.conn.BeginTx(bg, &sql.TxOptions{ReadOnly: true})
		return rollback(tx, err)
	},
	"Conn.ExecContext":     func(h *held) error { return noResult(h.conn.ExecContext(bg, "SELECT 1")) },
	"Conn.PingContext":     func(h *held) error { return h.conn.PingContext(bg) },
	"Conn.PrepareContext":  func(h *held) error { return closeStmt(h.conn.PrepareContext(bg, "SELECT 1")) },
	"Conn.QueryContext":    func(h *held) error { return closing(h.conn.QueryContext(bg, "SELECT 1")) },
	"Conn.QueryRowContext": func(h *held) error { return scanErr(h.conn.QueryRowContext(bg, "SELECT 1")) },
	"Conn.Raw":             rawPath,

	"Tx.Exec":            func(h *held) error { return noResult(h.tx.Exec("SELECT 1")) },
	"Tx.ExecContext":     func(h *held) error { return noResult(h.tx.ExecContext(bg, "SELECT ?", 1)) },
	"Tx.Prepare":         func(h *held) error { return closeStmt(h.tx.Prepare("SELECT 1")) },
	"Tx.PrepareContext":  func(h *held) error { return closeStmt(h.tx.PrepareContext(bg, "SELECT 1")) },
	"Tx.Query":           func(h *held) error { return closing(h.tx.Query("SELECT 1")) },
	"Tx.QueryContext":    func(h *held) error { return closing(h.tx.QueryContext(bg, "SELECT 1")) },
	"Tx.QueryRow":        func(h *held) error { return scanErr(h.tx.QueryRow("SELECT 1")) },
	"Tx.QueryRowContext": func(h *held) error { return scanErr(h.tx.QueryRowContext(bg, "SELECT 1")) },
	"Tx.Stmt":            func(h *held) error { return scanErr(h.tx.Stmt(h.stmt).QueryRow()) },
	"Tx.StmtContext":     func(h *held) error { return scanErr(h.tx.StmtContext(bg, h.stmt).QueryRow()) },
	"Tx.Commit":          nil, // see TestGuardCommit and TestGuardProofs

	"Stmt.Exec":            func(h *held) error { return noResult(h.stmt.Exec()) },
	"Stmt.ExecContext":     func(h *held) error { return noResult(h.txs.ExecContext(bg)) },
	"Stmt.Query":           func(h *held) error { return closing(h.stmt.Query()) },
	"Stmt.QueryContext":    func(h *held) error { return closing(h.txs.QueryContext(bg)) },
	"Stmt.QueryRow":        func(h *held) error { return scanErr(h.stmt.QueryRow()) },
	"Stmt.QueryRowContext": func(h *held) error { return scanErr(h.txs.QueryRowContext(bg)) },

	"Rows.Next": func(h *held) error {
		if h.rows.Next() {
			return nil
		}
		return h.rows.Err()
	},
}

func rollback(tx *sql.Tx, err error) error {
	if err == nil {
		err = tx.Rollback()
	}
	return err
}

func closeStmt(s *sql.Stmt, err error) error {
	if err == nil {
		err = s.Close()
	}
	return err
}

func withConn(db *sql.DB, f func(*sql.Conn) error) error {
	c, err := db.Conn(bg)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// rawPath uses every method that the value inside Raw offers, and wants all of
// them to agree.
func rawPath(h *held) error {
	return h.conn.Raw(func(dc any) error {
		var results []error
		try := func(err error) { results = append(results, err) }
		c := dc.(driver.Conn)
		s, err := c.Prepare("SELECT 1")
		try(err)
		if err == nil {
			try(s.Close())
		}
		s, err = dc.(driver.ConnPrepareContext).PrepareContext(bg, "SELECT 1")
		try(err)
		if err == nil {
			rows, err := s.(driver.StmtQueryContext).QueryContext(bg, nil)
			try(err)
			if err == nil {
				try(rows.Close())
			}
			_, err = s.(driver.StmtExecContext).ExecContext(bg, nil)
			try(errors.Join(err, s.Close()))
		}
		tx, err := dc.(driver.ConnBeginTx).BeginTx(bg, driver.TxOptions{ReadOnly: true})
		try(err)
		if err == nil {
			try(tx.Rollback())
		}
		_, err = dc.(driver.ExecerContext).ExecContext(bg, "SELECT 1", nil)
		try(err)
		rows, err := dc.(driver.QueryerContext).QueryContext(bg, "SELECT 1", nil)
		try(err)
		if err == nil {
			try(rows.Close())
		}
		try(dc.(driver.Pinger).Ping(bg))
		for _, r := range results[1:] {
			if (r == nil) != (results[0] == nil) {
				return fmt.Errorf("the ways through Raw disagree: %v", results)
			}
		}
		return results[0]
	})
}

func holdEverything(t *testing.T, db *sql.DB) *held {
	t.Helper()
	h := &held{db: db}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h.conn, err = db.Conn(bg)
	check()
	h.stmt, err = db.Prepare("SELECT 1")
	check()
	h.rows, err = db.Query("SELECT id FROM t ORDER BY id")
	check()
	h.tx, err = db.BeginTx(bg, &sql.TxOptions{ReadOnly: true}) // so that DB.Begin need not wait
	check()
	h.txs, err = h.tx.Prepare("SELECT 1")
	check()
	t.Cleanup(func() {
		for _, err := range []error{h.rows.Close(), h.stmt.Close(), h.txs.Close(), h.tx.Rollback(), h.conn.Close()} {
			if err != nil {
				t.Errorf("cleanup: %v", err)
			}
		}
	})
	return h
}

// GU-1, GU-4, GU-6: each path with the lease held, fenced, renewed, lost; things
// taken while it was held included.
func TestGuardEveryPath(t *testing.T) {
	gate := newTestGate()
	d := openGuarded(t, gate, nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	for range 200 {
		mustExec(t, d.DB(), insertRow)
	}
	h := holdEverything(t, d.DB())
	for name, path := range gatedPaths {
		if path == nil || name == "Rows.Next" {
			continue
		}
		for _, state := range []string{"held", "fenced", "renewed", "fenced again"} {
			fenced := strings.HasPrefix(state, "fenced")
			if gate.open(); fenced {
				gate.close()
			}
			err := path(h)
			if fenced {
				wantGateError(t, name+" "+state, err)
			} else if err != nil {
				t.Errorf("%s %s: %v", name, state, err)
			}
			if errors.Is(err, driver.ErrBadConn) {
				t.Errorf("%s %s: %v is a bad connection", name, state, err)
			}
		}
	}
	gate.open()
	if err := gatedPaths["Rows.Next"](h); err != nil {
		t.Errorf("Rows.Next held: %v", err)
	}
	gate.close()
	wantGateError(t, "Rows.Next fenced", gatedPaths["Rows.Next"](h))
	// The cleanup of holdEverything runs while the gate is closed.
}

func TestGuardDecisionsAreComplete(t *testing.T) {
	for _, v := range []any{&sql.DB{}, &sql.Conn{}, &sql.Tx{}, &sql.Stmt{}, &sql.Rows{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			name := typ.Elem().Name() + "." + typ.Method(i).Name
			decision, ok := decisions[name]
			if !ok {
				t.Errorf("nobody decided whether %s is gated", name)
			}
			if _, tested := gatedPaths[name]; tested != (decision == "gated") {
				t.Errorf("%s is %q, and tested: %v", name, decision, tested)
			}
		}
	}
}

// A refusal is asked for once: database/sql retries nothing.
func TestGuardRefusalIsNotRetried(t *testing.T) {
	gate := newTestGate()
	d := openGuarded(t, gate, nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	gate.close()
	before := gate.calls.Load()
	_, err := d.DB().Exec(insertRow)
	wantGateError(t, "Exec", err)
	if n := gate.calls.Load() - before; n != 1 {
		t.Errorf("the gate was asked %d times", n)
	}
}

// GU-5: what Raw hands out and what the handle's Driver opens.
func TestGuardNothingUnguardedIsReachable(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	_, err := d.DB().Driver().Open(d.Path())
	if err == nil {
		t.Error("Driver().Open opened something")
	}
	err = withConn(d.DB(), func(c *sql.Conn) error {
		return c.Raw(func(dc any) error {
			typ := reflect.TypeOf(dc)
			if pkg := typ.Elem().PkgPath(); !strings.HasSuffix(pkg, "/fencing") {
				t.Errorf("Raw hands out a %v", typ)
			}
			allowed := "Begin BeginTx Close Exec ExecContext IsValid Ping Prepare PrepareContext Query QueryContext ResetSession"
			for i := range typ.NumMethod() {
				if name := typ.Method(i).Name; !strings.Contains(" "+allowed+" ", " "+name+" ") {
					t.Errorf("Raw hands out something with a method %s", name)
				}
			}
			for i := range typ.Elem().NumField() {
				if f := typ.Elem().Field(i); f.IsExported() {
					t.Errorf("Raw hands out something with a field %s", f.Name)
				}
			}
			// Closing it must not take anything away from others.
			return dc.(driver.Conn).Close()
		})
	})
	if err != nil {
		t.Error(err)
	}
	if err := d.DB().Ping(); err != nil {
		t.Errorf("after closing a connection through Raw: %v", err)
	}
}

// A callback that shares what Raw gave it with another goroutine gets an error,
// not a crash.
func TestGuardRawIsNotForSharing(t *testing.T) {
	gate := &pausingGate{testGate: newTestGate(), entered: make(chan struct{}), resume: make(chan struct{})}
	d := openGuarded(t, gate, nil)
	err := withConn(d.DB(), func(c *sql.Conn) error {
		return c.Raw(func(dc any) error {
			gate.armed.Store(true)
			done := make(chan error)
			go func() { done <- dc.(driver.Pinger).Ping(context.Background()) }()
			<-gate.entered
			if err := dc.(driver.Pinger).Ping(bg); err == nil {
				t.Error("two calls were inside one connection")
			}
			close(gate.resume)
			return <-done
		})
	})
	if err != nil {
		t.Error(err)
	}
}
