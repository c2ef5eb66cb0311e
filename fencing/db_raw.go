package fencing

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// statementCache is how many compiled statements each connection keeps for calls
// that pass SQL text.
const statementCache = 32

// A rawConn is one connection to SQLite, with the pragmas, hooks and authorizer
// that every connection of a database has. Only whoever holds it, a conn that is
// inside a call or the pool, touches it; the callbacks of SQLite run
// inside such a call.
type rawConn struct {
	db        *Database
	inner     *sqlite3.SQLiteConn
	interrupt driver.StmtExecContext // see stop

	holder *conn // whose gate a commit must pass; nil while the pool has it

	internal bool   // the call is our own, not a consumer's
	sql      string // text of the consumer's call
	ownTx    bool   // a consumer has used BEGIN or SAVEPOINT as text here
	spoiled  bool   // not to be used by anyone else
	keysOff  bool   // foreign keys are not enforced at this moment
	keysSet  bool   // a consumer has compiled a statement here that sets them

	proving atomic.Bool // a commit is at its last proof
	veto    bool        // nothing may commit

	// What SQLite's callbacks saw during the current call.
	event      bool // one of them ran
	proved     uint64
	refused    error
	rolledBack bool
	denied     string
}

func (d *Database) openRaw() (*rawConn, error) {
	inner, err := d.connect()
	if err != nil {
		return nil, err
	}
	r := &rawConn{db: d, inner: inner}
	// It returns no row: one that was left at a row would stay active, and with it
	// an interrupt that was meant for another.
	stmt, err := inner.Prepare("SELECT 1 WHERE 0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a connection: %w", err), d.disconnect(inner))
	}
	r.interrupt = stmt.(driver.StmtExecContext)
	if err := r.limitSize(); err != nil {
		return nil, errors.Join(err, stmt.Close(), d.disconnect(inner))
	}
	inner.RegisterCommitHook(r.onCommit)
	inner.RegisterRollbackHook(r.onRollback)
	inner.RegisterAuthorizer(r.authorize)
	inner.SetLimit(sqlite3.SQLITE_LIMIT_LENGTH, d.opts.MaxValue)
	return r, nil
}

// limitSize tells the connection how far the file may grow, which SQLite does not keep in
// the file.
func (r *rawConn) limitSize() error {
	if r.db.opts.MaxBytes == 0 {
		return nil
	}
	text, err := queryText(r.inner, "PRAGMA page_size")
	if err != nil {
		return err
	}
	page, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("page size: %w", err)
	}
	return r.run(fmt.Sprintf("PRAGMA max_page_count = %d", max(1, r.db.opts.MaxBytes/page)))
}

func (r *rawConn) close() error {
	// Otherwise SQLite keeps the files open until the statement is finalized.
	r.interrupt.(driver.Stmt).Close()
	return r.db.disconnect(r.inner)
}

// run executes SQL of our own. It neither waits for a context nor enters the cache of
// statements, where a consumer's text would find it.
func (r *rawConn) run(text string) error {
	r.internal = true
	_, err := r.inner.ExecContext(context.Background(), text, nil)
	r.internal = false
	return err
}

// onCommit is the last proof: SQLite asks it inside the commit, and rolls back
// unless it returns 0.
func (r *rawConn) onCommit() int {
	r.event = true
	if r.holder == nil || r.veto {
		return 1
	}
	r.proving.Store(true)
	defer r.proving.Store(false)
	if err := r.holder.scope.check(); err != nil && !safeguards.Off(safeguards.CommitHook) {
		r.refused = err
		return 1
	}
	r.proved++
	return 0
}

func (r *rawConn) onRollback() {
	r.event = true
	r.rolledBack = true
}

// forget clears what the callbacks saw.
func (r *rawConn) forget() {
	r.event, r.proved, r.refused, r.rolledBack, r.denied = false, 0, nil, false, ""
}

// stop interrupts the call that is running on r, if any; it returns at once, and
// pending counts what it left behind: r must not be closed, nor used by another call,
// before that has ended.
//
// The driver interrupts on behalf of a statement whose context has ended, so this
// starts one under such a context, which then waits behind the running call. An
// interrupt that comes before SQLite has begun that call is lost, so whoever wants the call
// to end repeats it. At the last proof of a commit there is nothing to interrupt but the
// gate, which does not block.
func (r *rawConn) stop(pending *sync.WaitGroup) {
	if r.proving.Load() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	pending.Go(func() { _, _ = r.interrupt.ExecContext(ctx, nil) }) // its own outcome means nothing
}

// rollback ends whatever transaction is open. If one stays open the connection is
// not used again.
func (r *rawConn) rollback() {
	if r.inner.AutoCommit() {
		return
	}
	if err := r.run("ROLLBACK"); err != nil || !r.inner.AutoCommit() {
		r.spoiled = true
	}
}

// get returns an idle connection or opens one. When as many are in use as may be
// it waits for one, until ctx or done ends or the busy timeout has passed.
func (d *Database) get(ctx context.Context, done <-chan struct{}) (*rawConn, error) {
	if err := acquire(ctx, d.tokens, done, d.opts.BusyTimeout); err != nil {
		return nil, fmt.Errorf("wait for a connection: %w", err)
	}
	d.mu.Lock()
	d.mu.uses++
	if n := len(d.mu.idle); n > 0 {
		r := d.mu.idle[n-1]
		d.mu.idle = d.mu.idle[:n-1]
		d.mu.Unlock()
		return r, nil
	}
	closed := d.mu.closed
	d.mu.Unlock()
	if closed {
		<-d.tokens
		return nil, closedError("database")
	}
	r, err := d.openRaw()
	if err != nil {
		<-d.tokens
	}
	return r, err
}

// put takes back a connection that get returned.
func (d *Database) put(r *rawConn) error {
	r.holder = nil
	r.forget()
	d.mu.Lock()
	d.mu.uses++
	keep := !d.mu.closed && !r.spoiled && len(d.mu.idle) < d.opts.IdleConnections
	if keep {
		d.mu.idle = append(d.mu.idle, r)
	}
	d.mu.Unlock()
	<-d.tokens
	if keep {
		return nil
	}
	return r.close()
}

// acquire takes a place in sem, a semaphore of the channel's capacity.
func acquire(ctx context.Context, sem chan struct{}, done <-chan struct{}, patience time.Duration) error {
	select {
	case sem <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return closedError("handle")
	case <-timer.C:
		return busy("for other calls to end", sqlite3.Error{Code: sqlite3.ErrBusy})
	}
}
