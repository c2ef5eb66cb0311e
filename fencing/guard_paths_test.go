package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
)

// A kind says what a method owes while the lease cannot be proved.
type kind string

const (
	gated   kind = "gated"   // refuses with the gate's reason and changes nothing
	cleanup kind = "cleanup" // always works
	local   kind = "local"   // never reaches the driver's data, so always works
)

// A method is what somebody decided about one exported method of database/sql.
type method struct {
	kind kind
	call func(h *held) error
}

// held is one of each thing, taken while the lease was held.
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

var readOnly = &sql.TxOptions{ReadOnly: true}

func nothing(f func(h *held)) func(h *held) error {
	return func(h *held) error { f(h); return nil }
}

// methods has an entry for every exported method that can be reached from a
// *sql.DB; TestGuardEveryMethod walks the types and looks for what is missing.
var methods = map[string]method{
	"DB.Begin":           {gated, func(h *held) error { return rollback(h.db.Begin()) }},
	"DB.BeginTx":         {gated, func(h *held) error { return rollback(h.db.BeginTx(bg, readOnly)) }},
	"DB.Close":           {cleanup, func(h *held) error { return h.db.Close() }},
	"DB.Conn":            {gated, func(h *held) error { return withConn(h.db, func(c *sql.Conn) error { return c.PingContext(bg) }) }},
	"DB.Exec":            {gated, func(h *held) error { return noResult(h.db.Exec(insertRow)) }},
	"DB.ExecContext":     {gated, func(h *held) error { return noResult(h.db.ExecContext(bg, "INSERT INTO t(v) VALUES (?)", 1)) }},
	"DB.Ping":            {gated, func(h *held) error { return h.db.Ping() }},
	"DB.PingContext":     {gated, func(h *held) error { return h.db.PingContext(bg) }},
	"DB.Prepare":         {gated, func(h *held) error { return closeStmt(h.db.Prepare("SELECT 1")) }},
	"DB.PrepareContext":  {gated, func(h *held) error { return closeStmt(h.db.PrepareContext(bg, "SELECT 1")) }},
	"DB.Query":           {gated, func(h *held) error { return closing(h.db.Query("SELECT 1")) }},
	"DB.QueryContext":    {gated, func(h *held) error { return closing(h.db.QueryContext(bg, insertRow+" RETURNING id")) }},
	"DB.QueryRow":        {gated, func(h *held) error { return scanErr(h.db.QueryRow("SELECT 1")) }},
	"DB.QueryRowContext": {gated, func(h *held) error { return scanErr(h.db.QueryRowContext(bg, "SELECT 1")) }},

	"DB.Driver":             {local, nothing(func(h *held) { h.db.Driver() })},
	"DB.SetConnMaxIdleTime": {local, nothing(func(h *held) { h.db.SetConnMaxIdleTime(0) })},
	"DB.SetConnMaxLifetime": {local, nothing(func(h *held) { h.db.SetConnMaxLifetime(0) })},
	"DB.SetMaxIdleConns":    {local, nothing(func(h *held) { h.db.SetMaxIdleConns(1) })},
	"DB.SetMaxOpenConns":    {local, nothing(func(h *held) { h.db.SetMaxOpenConns(0) })},
	"DB.Stats":              {local, nothing(func(h *held) { h.db.Stats() })},

	"Conn.BeginTx":         {gated, func(h *held) error { return rollback(h.conn.BeginTx(bg, readOnly)) }},
	"Conn.Close":           {cleanup, func(h *held) error { return h.conn.Close() }},
	"Conn.ExecContext":     {gated, func(h *held) error { return noResult(h.conn.ExecContext(bg, insertRow)) }},
	"Conn.PingContext":     {gated, func(h *held) error { return h.conn.PingContext(bg) }},
	"Conn.PrepareContext":  {gated, func(h *held) error { return closeStmt(h.conn.PrepareContext(bg, "SELECT 1")) }},
	"Conn.QueryContext":    {gated, func(h *held) error { return closing(h.conn.QueryContext(bg, "SELECT 1")) }},
	"Conn.QueryRowContext": {gated, func(h *held) error { return scanErr(h.conn.QueryRowContext(bg, "SELECT 1")) }},
	"Conn.Raw":             {gated, throughRaw},

	"Tx.Commit":          {gated, func(h *held) error { return h.tx.Commit() }},
	"Tx.Exec":            {gated, func(h *held) error { return noResult(h.tx.Exec("SELECT 1")) }},
	"Tx.ExecContext":     {gated, func(h *held) error { return noResult(h.tx.ExecContext(bg, "SELECT ?", 1)) }},
	"Tx.Prepare":         {gated, func(h *held) error { return closeStmt(h.tx.Prepare("SELECT 1")) }},
	"Tx.PrepareContext":  {gated, func(h *held) error { return closeStmt(h.tx.PrepareContext(bg, "SELECT 1")) }},
	"Tx.Query":           {gated, func(h *held) error { return closing(h.tx.Query("SELECT 1")) }},
	"Tx.QueryContext":    {gated, func(h *held) error { return closing(h.tx.QueryContext(bg, "SELECT 1")) }},
	"Tx.QueryRow":        {gated, func(h *held) error { return scanErr(h.tx.QueryRow("SELECT 1")) }},
	"Tx.QueryRowContext": {gated, func(h *held) error { return scanErr(h.tx.QueryRowContext(bg, "SELECT 1")) }},
	"Tx.Rollback":        {cleanup, func(h *held) error { return h.tx.Rollback() }},
	"Tx.Stmt":            {gated, func(h *held) error { return scanErr(h.tx.Stmt(h.stmt).QueryRow()) }},
	"Tx.StmtContext":     {gated, func(h *held) error { return scanErr(h.tx.StmtContext(bg, h.stmt).QueryRow()) }},

	"Stmt.Close":           {cleanup, func(h *held) error { return h.stmt.Close() }},
	"Stmt.Exec":            {gated, func(h *held) error { return noResult(h.stmt.Exec()) }},
	"Stmt.ExecContext":     {gated, func(h *held) error { return noResult(h.txs.ExecContext(bg)) }},
	"Stmt.Query":           {gated, func(h *held) error { return closing(h.stmt.Query()) }},
	"Stmt.QueryContext":    {gated, func(h *held) error { return closing(h.txs.QueryContext(bg)) }},
	"Stmt.QueryRow":        {gated, func(h *held) error { return scanErr(h.stmt.QueryRow()) }},
	"Stmt.QueryRowContext": {gated, func(h *held) error { return scanErr(h.txs.QueryRowContext(bg)) }},

	"Rows.Close":         {cleanup, func(h *held) error { return h.rows.Close() }},
	"Rows.ColumnTypes":   {local, func(h *held) error { _, err := h.rows.ColumnTypes(); return err }},
	"Rows.Columns":       {local, func(h *held) error { _, err := h.rows.Columns(); return err }},
	"Rows.Err":           {local, func(h *held) error { return h.rows.Err() }},
	"Rows.NextResultSet": {local, nothing(func(h *held) { h.rows.NextResultSet() })},
	// What Scan copies was stepped to while the lease was held.
	"Rows.Scan": {local, func(h *held) error { var id int; return h.rows.Scan(&id) }},
	"Rows.Next": {gated, func(h *held) error {
		if h.rows.Next() {
			return nil
		}
		return h.rows.Err()
	}},
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

// throughRaw uses every method that the value inside Raw offers, and wants all of
// them to agree.
func throughRaw(h *held) error {
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
		_, err = dc.(driver.ExecerContext).ExecContext(bg, insertRow, nil)
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
	if !h.rows.Next() {
		t.Fatal("no row")
	}
	h.tx, err = db.BeginTx(bg, readOnly) // so that writes need not wait
	check()
	h.txs, err = h.tx.Prepare("SELECT 1")
	check()
	return h
}

// letGo is cleanup, so it works in every state of the lease. What Close of the
// handle or Commit have ended already says so.
func (h *held) letGo(t *testing.T, name string) {
	t.Helper()
	for _, err := range []error{h.rows.Close(), h.stmt.Close(), h.txs.Close(), h.tx.Rollback(), h.conn.Close(), h.db.Close()} {
		if err != nil && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, sql.ErrConnDone) {
			t.Errorf("cleanup after %s: %v", name, err)
		}
	}
}

// A tenureGate asks whichever lease is current; nil is always held.
type tenureGate struct{ lease atomic.Pointer[fencing.Lease] }

func (g *tenureGate) Check() error {
	if l := g.lease.Load(); l != nil {
		return l.Check()
	}
	return nil
}

// leaseStates bring a lease that was just granted into each state that it can have,
// in the order of a tenure's life.
var leaseStates = []struct {
	name   string
	reason coord.FenceReason // "" if work is let through
	enter  func(t *testing.T, clock *coordtest.Clock, store coord.LeaseStore, l *fencing.Lease)
}{
	{"held", "", func(*testing.T, *coordtest.Clock, coord.LeaseStore, *fencing.Lease) {}},
	{"fenced", coord.FenceExpired, func(_ *testing.T, clock *coordtest.Clock, _ coord.LeaseStore, l *fencing.Lease) {
		clock.Advance(l.Remaining())
	}},
	{"renewed", "", func(t *testing.T, clock *coordtest.Clock, _ coord.LeaseStore, l *fencing.Lease) {
		clock.Advance(l.Remaining())
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}},
	{"lost", coord.FenceLost, func(t *testing.T, _ *coordtest.Clock, store coord.LeaseStore, l *fencing.Lease) {
		if err := store.Release(t.Context(), l.Tenure()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "Renew", l.Renew(t.Context()), coord.CodeLeaseLost)
	}},
}

// GU-1, GU-4, GU-6: every exported method that can be reached from a *sql.DB, found
// by reflection so that one which a later Go adds fails until somebody decides about
// it, with the lease held, fenced, renewed again and lost, on things that were
// taken while it was held.
func TestGuardEveryMethod(t *testing.T) {
	gate := &tenureGate{}
	d := openGuarded(t, gate, nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), insertRow)
	mustExec(t, d.DB(), insertRow)
	clock := &coordtest.Clock{}
	found := map[string]bool{}
	for _, v := range []any{&sql.DB{}, &sql.Conn{}, &sql.Tx{}, &sql.Stmt{}, &sql.Rows{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			name := typ.Elem().Name() + "." + typ.Method(i).Name
			found[name] = true
			m, ok := methods[name]
			if !ok {
				t.Errorf("nobody decided what %s does without a lease", name)
				continue
			}
			for _, state := range leaseStates {
				store := memlease.New(clock)
				lease := acquire(t, store, clock)
				gate.lease.Store(lease)
				h := holdEverything(t, d.Scoped(nil))
				state.enter(t, clock, store, lease)
				before := d.Commits()
				err := m.call(h)
				if d.Commits() != before && state.reason != "" {
					t.Errorf("%s %s: something was committed", name, state.name)
				}
				m.judge(t, name+" "+state.name, state.reason, err)
				h.letGo(t, name+" "+state.name)
				gate.lease.Store(nil)
			}
		}
	}
	for name := range methods {
		if !found[name] {
			t.Errorf("database/sql has no %s", name)
		}
	}
}

func (m method) judge(t *testing.T, what string, reason coord.FenceReason, err error) {
	t.Helper()
	if reason == "" || m.kind != gated {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var fenced *coord.FencedError
	if !errors.As(err, &fenced) || fenced.Reason != reason {
		t.Errorf("%s: got %v, want a FencedError that says %q", what, err, reason)
	}
	if errors.Is(err, driver.ErrBadConn) {
		t.Errorf("%s: %v is a bad connection", what, err)
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
