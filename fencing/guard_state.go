package fencing

import (
	"database/sql/driver"
	"errors"
)

// The states of a conn. A call enters it (idle to busy or to a step's number) and leaves
// it (back to idle). Whoever moves it from idle to gone disposes of it; one with a call
// inside at that time is condemned, and the call disposes of it as it leaves.
//
//	idle ──enter──▶ busy or a step ──leave──▶ idle
//	busy ──a call comes to its step──▶ a step ──it is over, its call is not──▶ busy
//	busy or a step ──condemn──▶ condemned ──leave──▶ gone
//	idle ──condemn, Close──▶ gone
const (
	connIdle      int64 = iota
	connBusy            // a call is inside
	connCondemned       // so is one, and somebody takes the connection back
	connGone
	// This and the greater ones are the numbers of readers: a call is inside, with a step
	// that the end of that reader's context may interrupt.
	connStepping
)

// errInUse is returned to a caller that shares a connection between goroutines,
// which database/sql never does and a function given to Conn.Raw could.
var errInUse = errors.New("fencing: the connection is in use by another call")

func isInside(state int64) bool { return state == connBusy || state >= connStepping }

func (c *conn) enter() error { return c.enterAs(connBusy) }

func (c *conn) leave() { c.leaveAs(connBusy) }

func (c *conn) enterAs(inside int64) error {
	if c.state.CompareAndSwap(connIdle, inside) {
		return nil
	}
	if isInside(c.state.Load()) {
		return errInUse
	}
	return closedError("handle")
}

func (c *conn) leaveAs(inside int64) {
	if !c.state.CompareAndSwap(inside, connIdle) {
		c.state.Store(connGone)
		_ = c.dispose()
	}
}

// beginWith is begin for a call that has arguments.
func (c *conn) beginWith(text string, args []driver.NamedValue) error {
	if err := checkSize(args); err != nil {
		return err
	}
	return c.begin(text)
}

// begin enters c for a call of SQL text that needs the lease. A transaction that BeginTx
// began is not for text to end; one that text began, and SQLite ended, is over for its
// caller once that has heard of it.
func (c *conn) begin(text string) error {
	if err := c.admit(); err != nil {
		if c.textTx && errors.Is(err, ErrTxAborted) {
			return c.endTextTx(text, err)
		}
		return err
	}
	if c.tx != nil && txVerbOf(text) != txNothing {
		c.leave()
		return refuse(transactionByText, nil)
	}
	c.raw.sql = text
	return nil
}

const transactionByText = "beginning or ending a transaction by text, within one of BeginTx,"

// endTextTx lets a COMMIT or ROLLBACK end the state of a transaction that is over.
func (c *conn) endTextTx(text string, aborted error) error {
	verb := txVerbOf(text)
	if verb != txCommit && verb != txRollback || c.enter() != nil {
		return aborted
	}
	c.textTx, c.aborted = false, nil
	c.raw.rollback() // if it could not be when it was aborted
	c.leave()
	if verb == txCommit {
		return aborted
	}
	return c.begin(text) // SQLite says that there is no transaction
}

// admit enters c for a call that needs the lease.
func (c *conn) admit() error { return c.admitAs(connBusy) }

func (c *conn) admitAs(inside int64) error {
	if err := c.enterAs(inside); err != nil {
		return err
	}
	err := c.scope.checkRead()
	if err == nil {
		err = c.aborted
	}
	if err == nil && c.raw.keysOff != c.scope.keysOff.Load() {
		err = c.followKeys()
	}
	if err != nil {
		c.leaveAs(inside)
	}
	return err
}

// condemned reports that the call inside may have been interrupted by whoever takes the
// connection back. What interrupts can make the driver forget the statement's error, so
// a success is not believed.
func (c *conn) condemned() bool { return c.state.Load() == connCondemned }

// Close implements driver.Conn. It gives the connection back.
func (c *conn) Close() error {
	_, err := c.takeBack()
	return err
}

// takeBack ends the time of c: at once, or when the call that is inside leaves, and then it
// reports false. Between two looks at the state a call may come or go, or get
// from its step to what follows it, so it looks until nothing came between.
func (c *conn) takeBack() (disposed bool, err error) {
	for {
		switch s := c.state.Load(); {
		case s == connIdle:
			if c.state.CompareAndSwap(connIdle, connGone) {
				return true, c.dispose()
			}
		case !isInside(s), c.state.CompareAndSwap(s, connCondemned):
			return false, nil
		}
	}
}

// dispose ends everything that is open and gives raw back to the database.
func (c *conn) dispose() error {
	c.stop.Lock()
	c.stop.disposed = true
	c.raw.spoiled = c.raw.spoiled || c.stop.interrupted
	c.stop.Unlock()
	c.stop.pending.Wait()
	c.tidy()
	for c.stmts != nil {
		_ = c.stmts.close()
	}
	c.raw.rollback()
	c.yieldWriter()
	err := c.scope.db.put(c.raw)
	c.scope.returned(c)
	close(c.gone)
	return err
}
