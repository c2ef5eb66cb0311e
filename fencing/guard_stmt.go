package fencing

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// A stmt is a prepared statement.
type stmt struct {
	c          *conn
	inner      *sqlite3.SQLiteStmt // nil once closed
	text       string
	writes     bool
	prev, next *stmt
}

// NumInput implements driver.Stmt.
func (s *stmt) NumInput() int {
	if s.c.enter() != nil {
		return -1 // unknown; the call that follows says why
	}
	defer s.c.leave()
	if s.inner == nil {
		return -1
	}
	return s.inner.NumInput()
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	c := s.c
	if err := c.beginWith(s.text, args); err != nil {
		return nil, err
	}
	defer c.leave()
	if s.inner == nil {
		return nil, errStmtClosed
	}
	if s.writes && c.tx == nil {
		claimed, err := c.claimWriter(ctx)
		if err != nil {
			return nil, err
		}
		if claimed {
			defer c.yieldWriter()
		}
	}
	stop := c.heed(ctx)
	result, err := s.inner.ExecContext(context.Background(), args)
	if err = c.settle(c.unheed(ctx, stop, err)); err != nil {
		return nil, err
	}
	return result, nil
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	c := s.c
	if !s.writes {
		r, err := c.beginRead(ctx, s.text, args)
		if err != nil {
			return nil, err
		}
		if s.inner == nil {
			return c.endRead(r, nil, errStmtClosed)
		}
		inner, err := s.inner.QueryContext(r.stepContext(ctx), args)
		return c.endRead(r, inner, err)
	}
	if err := c.beginWith(s.text, args); err != nil {
		return nil, err
	}
	defer c.leave()
	if s.inner == nil {
		return nil, errStmtClosed
	}
	claimed, err := false, error(nil)
	if c.tx == nil {
		if claimed, err = c.claimWriter(ctx); err != nil {
			return nil, err
		}
	}
	stop := c.heed(ctx)
	inner, err := s.inner.QueryContext(context.Background(), args)
	return c.addRows(&rows{c: c, inside: connBusy, ctx: ctx, claimed: claimed}, inner, err, c.unheed(ctx, stop, err))
}

var errStmtClosed = errors.New("fencing: the statement is closed")

// Close implements driver.Stmt; it needs no lease.
func (s *stmt) Close() error {
	if s.c.enter() != nil {
		return nil // closed with its connection
	}
	defer s.c.leave()
	return s.close()
}

func (s *stmt) close() error {
	if s.inner == nil {
		return nil
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		s.c.stmts = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	inner := s.inner
	s.inner, s.prev, s.next = nil, nil, nil
	return inner.Close()
}

// A rows is an open result set.
type rows struct {
	c          *conn
	inner      *sqlite3.SQLiteRows // nil once closed
	columns    []string
	prev, next *rows

	// These are of a statement that reads.
	reader *reader // nil if no context can end it
	inside int64   // the state of c during a step: the reader's number, or busy

	// A statement that writes commits when its last step is taken or, before that, with
	// its closing.
	ctx     context.Context // of the call; nil if it only reads
	claimed bool            // holds the database's writer for this
	wrote   bool            // an earlier statement of the same text has committed
	atEnd   bool            // its last step was taken
	taken   bool            // closed with its connection, before its holder did
	fate    error           // what became of it then
}

// Columns implements driver.Rows. Names are not data and need no lease.
func (r *rows) Columns() []string { return r.columns }

// Next implements driver.Rows. The step it takes may commit, if the statement
// writes.
func (r *rows) Next(dest []driver.Value) error {
	c, inside, ended := r.c, r.inside, r.hasEnded()
	if ended {
		inside = connBusy // there will be no step to interrupt
	}
	if err := c.admitAs(inside); err != nil {
		r.calm()
		if r.wrote {
			// Fenced would promise that the call changed nothing.
			return &coord.OutcomeUnknownError{Cause: err}
		}
		return err
	}
	var err error
	switch {
	case r.inner == nil:
		err = errRowsClosed
	case !ended:
		err = r.inner.Next(dest)
		if err == nil && !c.raw.event && c.state.CompareAndSwap(inside, connIdle) {
			if r.hasEnded() {
				return r.disown()
			}
			return nil // as nearly all rows do
		}
	}
	err = c.settle(r.stepped(err))
	r.atEnd = r.atEnd || err == io.EOF
	c.leave()
	if r.wrote {
		return unsure(err)
	}
	return err
}

var errRowsClosed = errors.New("fencing: the result set is closed")

// Close implements driver.Rows. It needs no lease; but a statement that writes and
// was not read to its end commits here, and that does. If it was closed with its
// connection, its holder may still take it for committed.
func (r *rows) Close() error {
	c := r.c
	if err := c.enter(); err != nil {
		if errors.Is(err, errInUse) || r.ctx == nil {
			return nil
		}
		<-c.gone
		return r.fate
	}
	defer c.leave()
	switch {
	case r.taken:
		return r.fate
	case r.ctx != nil && r.inner != nil && !r.atEnd && r.ctx.Err() != nil:
		return r.giveUp()
	}
	return c.settle(r.close())
}

// giveUp closes a statement that writes without a commit. Its context has ended, which is
// all that its holder hears from database/sql.
func (r *rows) giveUp() error {
	c, cause := r.c, r.ctx.Err()
	c.raw.veto = true
	_ = r.close()
	c.raw.veto = false
	c.abandonTx(cause)
	err := c.settle(cause)
	if r.wrote {
		return unsure(err)
	}
	return err
}

func (r *rows) close() error {
	if r.inner == nil {
		return nil
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		r.c.rows = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	inner := r.inner
	r.inner, r.prev, r.next = nil, nil, nil
	r.endReader()
	err := inner.Close()
	if r.claimed {
		r.c.yieldWriter()
	}
	return err
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	name := ""
	r.describe(func(inner *sqlite3.SQLiteRows) { name = inner.ColumnTypeDatabaseTypeName(i) })
	return name
}

// ColumnTypeNullable implements driver.RowsColumnTypeNullable.
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	r.describe(func(inner *sqlite3.SQLiteRows) { nullable, ok = inner.ColumnTypeNullable(i) })
	return nullable, ok
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	t := reflect.TypeFor[any]()
	r.describe(func(inner *sqlite3.SQLiteRows) { t = inner.ColumnTypeScanType(i) })
	return t
}

func (r *rows) describe(what func(*sqlite3.SQLiteRows)) {
	if r.c.enter() != nil {
		return
	}
	defer r.c.leave()
	if r.inner != nil {
		what(r.inner)
	}
}
