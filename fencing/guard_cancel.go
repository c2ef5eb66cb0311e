package fencing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// The driver interrupts a statement once when its context ends. If that is before
// SQLite has begun, as on a busy machine it is, the interrupt finds nothing, and the
// statement runs to its end, which may never come. So a guarded call interrupts by
// itself, again and again until the call has returned.
type cancellation struct {
	over        chan struct{} // takes one value when the call has returned
	joined      chan struct{} // takes one value when nothing will interrupt any more
	interrupted bool          // handed over by joined
	onDone      func()
}

func newCancellation(c *conn) cancellation {
	return cancellation{over: make(chan struct{}, 1), joined: make(chan struct{}, 1), onDone: c.interruptUntilOver}
}

// heed has the call that is inside end when ctx does. The function that it returns
// must be called when the call has returned; it waits until nothing can
// interrupt what comes after, and reports whether the call was interrupted.
func (c *conn) heed(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return nil
	}
	return context.AfterFunc(ctx, c.cancel.onDone)
}

// unheed is what a call says about its outcome once it has returned. A connection
// that was interrupted may have forgotten the statement's error, so its result is
// not believed: it was cancelled.
func (c *conn) unheed(ctx context.Context, stop func() bool, err error) error {
	if stop == nil || stop() {
		return err
	}
	c.cancel.over <- struct{}{}
	<-c.cancel.joined
	if !c.cancel.interrupted {
		return err
	}
	if err == nil {
		c.abandonTx(ctx.Err())
	}
	return ctx.Err()
}

// abandonTx is for a statement that may have done its work although its caller is told
// of an error: nobody may commit that. SQLite itself ends the transaction of a write that
// it interrupts.
func (c *conn) abandonTx(cause error) {
	switch {
	case c.tx != nil && !c.tx.readOnly:
		c.aborted = txAborted(cause)
	case c.tx == nil && c.raw.ownTx:
		c.raw.rollback()
	}
}

// unsure makes of err, after a commit, that nobody knows what the call did, if it ended
// with its context.
func unsure(err error) error {
	if errors.Is(err, coord.CodeOutcomeUnknown) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(err, &coord.OutcomeUnknownError{Cause: err})
	}
	return err
}

func (c *conn) interruptUntilOver() {
	c.cancel.interrupted = false
	var pending sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.cancel.over:
			pending.Wait()
			c.cancel.joined <- struct{}{}
			return
		case <-timer.C:
		}
		c.cancel.interrupted = true
		c.raw.stop(&pending)
		timer.Reset(interruptEvery)
	}
}
