package fencing

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// A conn is what database/sql, and through Conn.Raw a consumer, holds in place of
// a connection of the SQLite driver. Each call enters it, proves the lease,
// and leaves it; cleanup only enters and leaves.
type conn struct {
	scope *scope
	raw   *rawConn
	state atomic.Int64  // see connIdle
	gone  chan struct{} // closed when raw has been given back

	// The rest belongs to the call that is inside.
	tx      *tx   // the open transaction that BeginTx began
	aborted error // why the transaction is over before its end
	textTx  bool  // a transaction began by text and its caller has not heard of its end
	writing bool  // holds the database's writer
	rows    *rows // open, the first of a list
	stmts   *stmt // open, the first of a list
	cancel  cancellation
	spare   *reader
	readers int64 // that were made

	// stop keeps raw from being closed under an interrupt of whoever takes the
	// connection back.
	stop struct {
		sync.Mutex
		interrupted bool
		disposed    bool
		pending     sync.WaitGroup // nobody adds once disposed is set
	}
}

// settle turns what SQLite said into what the caller hears.
func (c *conn) settle(err error) error {
	if isFull(err) {
		c.raw.rollback() // SQLite may have undone the statement only
	}
	if c.raw.keysSet {
		if failed := c.noticeKeys(); err == nil {
			err = failed
		}
	}
	if c.raw.ownTx && c.tx == nil {
		c.noticeTextTx(err)
	}
	if err == nil && c.condemned() {
		err = closedError("handle")
	}
	if err == nil && !c.raw.event {
		return nil
	}
	proved, refused, rolledBack, denied := c.raw.proved, c.raw.refused, c.raw.rolledBack, c.raw.denied
	c.raw.forget()
	c.scope.db.commits.Add(proved)
	if c.tx != nil && (proved > 0 || rolledBack) {
		c.aborted = txAborted(err)
	}
	if refused == nil && proved > 0 && !safeguards.Off(safeguards.GateAfter) {
		refused = c.scope.check()
	}
	switch {
	case refused != nil && proved > 0:
		return &coord.OutcomeUnknownError{Cause: refused}
	case refused != nil:
		return refused
	case denied != "" && err != nil:
		return refuse(denied, err)
	case isFull(err):
		return full(err)
	case isBusy(err):
		return busy("for the lock of the file", err)
	case proved > 0:
		return unsure(err)
	}
	return err
}

// noticeTextTx follows a transaction that began by text. If it ended with a call that
// was not to end it, what follows would run outside of it.
func (c *conn) noticeTextTx(err error) {
	open := !c.raw.inner.AutoCommit()
	if c.textTx && !open && err != nil && txVerbOf(c.raw.sql) == txNothing {
		c.aborted = txAborted(err)
		return
	}
	if c.aborted == nil {
		c.textTx = open
	}
}

// claimWriter waits for c's turn to write, unless c has it or a transaction is
// open that either has it or must not have it. The wait is only a courtesy: SQLite's own
// lock is what keeps two writers apart.
func (c *conn) claimWriter(ctx context.Context) (claimed bool, err error) {
	if c.writing || c.tx != nil || c.raw.ownTx && !c.raw.inner.AutoCommit() {
		return false, nil
	}
	if err := acquire(ctx, c.scope.db.writer, c.scope.done, c.scope.db.opts.BusyTimeout); err != nil {
		// After a long wait the lease is the better reason.
		if fenced := c.scope.check(); fenced != nil {
			return false, fenced
		}
		return false, err
	}
	c.writing = true
	return true, nil
}

func (c *conn) yieldWriter() {
	if c.writing {
		c.writing = false
		<-c.scope.db.writer
	}
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.beginWith(query, args); err != nil {
		return nil, err
	}
	defer c.leave()
	if c.tx == nil && looksLikeWrite(query) {
		claimed, err := c.claimWriter(ctx)
		if err != nil {
			return nil, err
		}
		if claimed {
			defer c.yieldWriter()
		}
	}
	stop := c.heed(ctx)
	result, err := c.raw.inner.ExecContext(context.Background(), query, args)
	if err = c.settle(c.unheed(ctx, stop, err)); err != nil {
		return nil, err
	}
	return result, nil
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !looksLikeWrite(query) {
		r, err := c.beginRead(ctx, query, args)
		if err != nil {
			return nil, err
		}
		inner, err := c.raw.inner.QueryContext(r.stepContext(ctx), query, args)
		return c.endRead(r, inner, err)
	}
	if err := c.beginWith(query, args); err != nil {
		return nil, err
	}
	defer c.leave()
	claimed, err := false, error(nil)
	if c.tx == nil {
		if claimed, err = c.claimWriter(ctx); err != nil {
			return nil, err
		}
	}
	stop := c.heed(ctx)
	inner, err := c.raw.inner.QueryContext(context.Background(), query, args)
	return c.addRows(&rows{c: c, inside: connBusy, ctx: ctx, claimed: claimed}, inner, err, c.unheed(ctx, stop, err))
}

// addRows settles the first step, which the driver has taken already: failed is what
// it said, err what is to be told. A statement
// that writes holds the writer until its rows are closed, because that is when it
// commits.
func (c *conn) addRows(r *rows, inner driver.Rows, failed, err error) (driver.Rows, error) {
	r.wrote = c.raw.proved > 0
	if err = c.settle(err); err != nil {
		r.endReader()
		if failed == nil {
			c.discard(inner)
		}
		if r.claimed {
			c.yieldWriter()
		}
		return nil, err
	}
	r.inner, r.next = inner.(*sqlite3.SQLiteRows), c.rows
	if c.rows != nil {
		c.rows.prev = r
	}
	c.rows = r
	r.columns = inner.Columns()
	return r, nil
}

// discard closes a result set that its caller does not get. A statement that writes and is
// at a row would commit as it closes.
func (c *conn) discard(inner driver.Rows) {
	c.raw.veto = true
	_ = inner.Close()
	c.raw.veto = false
	_ = c.settle(nil)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.begin(query); err != nil {
		return nil, err
	}
	defer c.leave()
	inner, err := c.raw.inner.PrepareContext(ctx, query)
	if err := c.settle(err); err != nil {
		return nil, err
	}
	s := &stmt{c: c, inner: inner.(*sqlite3.SQLiteStmt), text: query, writes: looksLikeWrite(query), next: c.stmts}
	if c.stmts != nil {
		c.stmts.prev = s
	}
	c.stmts = s
	return s, nil
}

// BeginTx implements driver.ConnBeginTx. SQLite's transactions are serializable,
// which is what every isolation level allows.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	defer c.leave()
	if c.tx != nil {
		return nil, errors.New("fencing: a transaction is open on this connection")
	}
	t := &tx{c: c, readOnly: opts.ReadOnly}
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	c.tx = t
	return t, nil
}

// Ping implements driver.Pinger.
func (c *conn) Ping(context.Context) error {
	if err := c.admit(); err != nil {
		return err
	}
	c.leave()
	return nil
}

// ResetSession implements driver.SessionResetter. A connection that was taken back
// while the pool had it was not used since, so the pool may try another one.
func (c *conn) ResetSession(context.Context) error {
	if c.state.Load() != connIdle {
		return driver.ErrBadConn
	}
	return nil
}

// IsValid implements driver.Validator. The pool asks it about every connection
// that comes back, so this is where one loses what was left open on it.
func (c *conn) IsValid() bool {
	if c.enter() != nil {
		return false
	}
	defer c.leave()
	c.tidy()
	return !c.raw.spoiled
}

func (c *conn) tidy() {
	for r := c.rows; r != nil; r = c.rows {
		r.taken = true
		r.fate = c.settle(r.close())
	}
	if c.tx != nil {
		c.tx.finish()
	}
	if c.raw.ownTx {
		c.raw.rollback()
		c.textTx, c.aborted = false, nil
	}
	if c.raw.event {
		_ = c.settle(nil) // counts what a result set committed as it closed
	}
}
