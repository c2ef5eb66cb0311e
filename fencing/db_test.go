package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/test/filelocks"
)

const endless = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r) SELECT count(*) FROM r"

// RO-5: what a callback keeps stops working with its handle, and nothing else does.
func TestScopedEndsWhatWasKept(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), insertRow)
	mustExec(t, d.DB(), insertRow)
	scoped := d.Scoped(nil)
	ctx, cancel := context.WithCancel(bg)
	defer cancel() // database/sql keeps a goroutine for a transaction until then
	conn, err := scoped.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stmt, err := scoped.Prepare("SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := scoped.Query("SELECT id FROM t")
	if err != nil {
		t.Fatal(err)
	}
	returning, err := scoped.Query("UPDATE t SET v = 'kept' RETURNING id")
	if err != nil {
		t.Fatal(err)
	}
	if err := returning.Close(); err != nil {
		t.Fatal(err)
	}
	tx, err := scoped.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	txRows, err := tx.Query("INSERT INTO t(v) VALUES ('in transaction') RETURNING id")
	if err != nil {
		t.Fatal(err)
	}
	if err := scoped.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"conn":  conn.PingContext(bg),
		"tx":    noResult(tx.Exec(insertRow)),
		"begin": rollback(conn.BeginTx(bg, nil)),
	} {
		wantCode(t, what, err, coord.CodeHandleClosed)
	}
	if err := scanErr(stmt.QueryRow()); err == nil {
		t.Error("a kept statement works")
	}
	for what, r := range map[string]*sql.Rows{"rows": rows, "rows of a transaction": txRows} {
		if r.Next() {
			t.Errorf("kept %s go on", what)
		}
		wantCode(t, what, r.Err(), coord.CodeHandleClosed)
	}
	if err := scoped.Ping(); err == nil {
		t.Error("a kept handle works")
	}
	wantCode(t, "Commit", tx.Commit(), coord.CodeHandleClosed)
	if n := count(t, d.DB(), "t"); n != 2 {
		t.Errorf("%d rows: the transaction survived", n)
	}
	mustExec(t, d.DB(), insertRow) // would be BUSY if the transaction were open
	for _, err := range []error{conn.Close(), stmt.Close(), rows.Close()} {
		if err != nil && !errors.Is(err, coord.CodeHandleClosed) {
			t.Errorf("cleanup: %v", err)
		}
	}
}

// A handle's own gate counts, inside the commit and after it too.
func TestScopedGate(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	gate := newTestGate()
	scoped := d.Scoped(gate)
	defer scoped.Close()
	mustExec(t, scoped, insertRow)
	for answers, code := range map[int64]coord.Code{0: coord.CodeFenced, 1: coord.CodeFenced, 2: coord.CodeOutcomeUnknown} {
		gate.closeAfter(answers)
		wantCode(t, "Exec", noResult(scoped.Exec(insertRow)), code)
	}
	mustExec(t, d.DB(), insertRow)
}

// A call that is running when its handle is closed is ended, and Close waits.
func TestScopedInterruptsWhatRuns(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	for name, run := range map[string]func(db *sql.DB) error{
		"query": func(db *sql.DB) error { return scanErr(db.QueryRow(endless)) },
		"query with a context": func(db *sql.DB) error {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			return scanErr(db.QueryRowContext(ctx, endless))
		},
		"exec":  func(db *sql.DB) error { return noResult(db.Exec(endless)) },
		"write": func(db *sql.DB) error { return noResult(db.Exec("INSERT INTO t(v) " + endless)) },
	} {
		scoped := d.Scoped(nil)
		started, done := make(chan struct{}), make(chan error)
		go func() {
			c, err := scoped.Conn(bg)
			close(started)
			if err == nil {
				err = c.Close()
			}
			done <- errors.Join(err, run(scoped))
		}()
		<-started
		if err := scoped.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if err := <-done; err == nil {
			t.Errorf("%s: an endless call ended well", name)
		}
		if n := count(t, d.DB(), "t"); n != 0 {
			t.Errorf("%s: %d rows", name, n)
		}
	}
}

// Close is bounded even by what cannot be interrupted; the file is closed when that
// returns.
func TestCloseIsBounded(t *testing.T) {
	gate := &pausingGate{testGate: newTestGate(), entered: make(chan struct{}), resume: make(chan struct{})}
	path := filepath.Join(t.TempDir(), "ledger.db")
	d, err := fencing.OpenDatabase(bg, path, gate, &fencing.DatabaseOptions{Create: true, CloseTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	done := make(chan error)
	gate.armed.Store(true)
	go func() { done <- noResult(d.DB().Exec(insertRow)) }()
	<-gate.entered
	if err := d.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a call that hangs: %v", err)
	}
	close(gate.resume)
	wantCode(t, "the call that hung", <-done, coord.CodeHandleClosed)
	if n := openDescriptors(t, path); n != 0 {
		t.Errorf("%d descriptors are open", n)
	}
}

func openDescriptors(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(target, path) {
			n++
		}
	}
	return n
}

func TestCloseLeavesNothingOpen(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), insertRow)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var kept []*sql.Rows
	for range 6 {
		rows, err := d.DB().Query("SELECT 1 UNION SELECT 2")
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, rows)
	}
	stmt, err := d.DB().Prepare("SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := d.Scoped(nil).BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, insertRow)
	if openDescriptors(t, d.Path()) == 0 {
		t.Fatal("the test sees no descriptors")
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if n := openDescriptors(t, d.Path()); n != 0 {
		t.Errorf("%d descriptors are open", n)
	}
	if files := filesIn(t, filepath.Dir(d.Path())); len(files) != 1 {
		t.Errorf("files after Close: %v", files)
	}
	for _, rows := range kept {
		if rows.Next() {
			t.Error("rows go on after Close")
		}
		rows.Close()
	}
	stmt.Close()
	wantCode(t, "Tx", noResult(tx.Exec(insertRow)), coord.CodeHandleClosed)
	if err := d.DB().Ping(); err == nil {
		t.Error("the handle works after Close")
	}
	late := d.Scoped(nil)
	defer late.Close()
	wantCode(t, "Scoped", late.Ping(), coord.CodeHandleClosed)
	wantCode(t, "Image", d.Image(bg, d.Path()+".image"), coord.CodeHandleClosed)
}

// Nested queries get connections of their own.
func TestNestedQueriesDoNotDeadlock(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	for range 3 {
		mustExec(t, d.DB(), insertRow)
	}
	rows, err := d.DB().Query("SELECT id FROM t")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		mustExec(t, d.DB(), insertRow)
		n += count(t, d.DB(), "t")
	}
	if err := rows.Err(); err != nil || n != 4+5+6 {
		t.Errorf("%d, %v", n, err)
	}
}

// More connections than there may be: an error in bounded time, not a deadlock.
func TestConnectionsAreBounded(t *testing.T) {
	d := openGuarded(t, newTestGate(), &fencing.DatabaseOptions{MaxConnections: 2, BusyTimeout: time.Second})
	for range 2 {
		c, err := d.Scoped(nil).Conn(bg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if err := d.DB().Ping(); err == nil {
		t.Error("a third connection was lent")
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := d.DB().PingContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting under a cancelled context: %v", err)
	}
}

// Trap 45: transactions that read and then write wait for each other, and so do
// plain writes beside them.
func TestWritersTakeTurns(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE n(i INTEGER)")
	mustExec(t, d.DB(), "INSERT INTO n VALUES (0)")
	const writers, each = 8, 25
	var wg sync.WaitGroup
	errs := make(chan error, 2*writers)
	for range writers {
		wg.Go(func() { errs <- repeat(each, func() error { return increment(d.DB()) }) })
		wg.Go(func() {
			errs <- repeat(each, func() error { return noResult(d.DB().Exec("UPDATE n SET i = i + 1")) })
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	var i int
	if err := d.DB().QueryRow("SELECT i FROM n").Scan(&i); err != nil || i != 2*writers*each {
		t.Errorf("%d (%v), want %d", i, err, 2*writers*each)
	}
	if got := d.Commits(); got != 2+2*writers*each {
		t.Errorf("Commits is %d, want %d", got, 2+2*writers*each)
	}
}

func repeat(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func increment(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var i int
	if err := tx.QueryRow("SELECT i FROM n").Scan(&i); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE n SET i = ?", i+1); err != nil {
		return err
	}
	return tx.Commit()
}

// Waiting to write ends with the context, with the handle, and after the busy
// timeout.
func TestWaitingWriterGivesUp(t *testing.T) {
	d := openGuarded(t, newTestGate(), &fencing.DatabaseOptions{BusyTimeout: time.Minute})
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for name, write := range map[string]func(ctx context.Context, db *sql.DB) error{
		"Exec":  func(ctx context.Context, db *sql.DB) error { return noResult(db.ExecContext(ctx, insertRow)) },
		"Begin": func(ctx context.Context, db *sql.DB) error { return rollback(db.BeginTx(ctx, nil)) },
		"Query": func(ctx context.Context, db *sql.DB) error {
			return closing(db.QueryContext(ctx, insertRow+" RETURNING id"))
		},
	} {
		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		if err := write(ctx, d.DB()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s whose context ends: %v", name, err)
		}
		cancel()
		scoped := d.Scoped(nil)
		waiting := make(chan error)
		go func() { waiting <- write(bg, scoped) }()
		if err := scoped.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; err == nil {
			t.Errorf("%s on a handle that is closed succeeded", name)
		}
	}
	if n := count(t, d.DB(), "t"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestWriterIsBusy(t *testing.T) {
	d := openGuarded(t, newTestGate(), &fencing.DatabaseOptions{BusyTimeout: 500 * time.Millisecond})
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var busy sqlite3.Error
	if err := noResult(d.DB().Exec(insertRow)); !errors.As(err, &busy) || busy.Code != sqlite3.ErrBusy {
		t.Errorf("a second writer: %v", err)
	}
}

// Trap 50.
func TestOldSQLiteIsRefused(t *testing.T) {
	if err := fencing.CheckSQLiteVersion(3051002); err == nil {
		t.Error("3.51.2 is accepted")
	}
	if err := fencing.CheckSQLiteVersion(3051003); err != nil {
		t.Error(err)
	}
}

// wantLocks expects the locks of the file to be as before.
func wantLocks(t *testing.T, path, before string) {
	t.Helper()
	if after := filelocks.Of(t, path); after != before {
		t.Errorf("locks before:\n%s\nafter:\n%s", before, after)
	}
}
