package fencing

import (
	"context"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"time"
)

// A reader ends a result set that only reads when its context ends. The driver would
// do so as well, but once, as the file's comment on cancellation says, and at the
// price of two locks for each row; so the driver gets a context without an end.
//
// Only while the connection is stepping, and conn.reading names the result set, may it be
// interrupted: whatever else the connection does is not its business. A step that may
// have been interrupted returns only when whoever interrupts is done, and its outcome is
// not believed.
type reader struct {
	c       *conn
	fire    func() // interruptSteps
	ctx     context.Context
	halt    func() bool
	over    chan struct{} // closed by end
	ended   atomic.Bool   // ctx has ended; set before the first interrupt
	pending sync.WaitGroup
}

// newReader returns the rows of a query that is about to begin.
func (c *conn) newReader(ctx context.Context) *rows {
	r := &rows{c: c}
	if ctx.Done() == nil {
		return r
	}
	if r.reader = c.spare.Swap(nil); r.reader == nil {
		r.reader = &reader{c: c, over: make(chan struct{})}
		r.reader.fire = r.reader.interruptSteps
	}
	r.reader.ctx = ctx
	r.reader.halt = context.AfterFunc(ctx, r.reader.fire)
	return r
}

// beginRead enters c for a query that does not look like a write.
func (c *conn) beginRead(ctx context.Context, text string, args []driver.NamedValue) (*rows, error) {
	if err := checkSize(args); err != nil {
		return nil, err
	}
	r := c.newReader(ctx)
	if err := c.beginAs(r.announce(), text); err != nil {
		r.endReader()
		return nil, err
	}
	return r, nil
}

// endRead leaves c; failed is what the driver said to the query.
func (c *conn) endRead(r *rows, inner driver.Rows, failed error) (driver.Rows, error) {
	inside := r.inside()
	out, err := c.addRows(r, inner, failed, r.stepped(failed))
	c.leaveAs(inside)
	r.calm()
	return out, err
}

// stepContext is what the driver is told in place of ctx.
func (r *rows) stepContext(ctx context.Context) context.Context {
	if r.reader == nil {
		return ctx
	}
	return context.Background()
}

// inside is the state that c has during a step of r.
func (r *rows) inside() int32 {
	if r.reader == nil {
		return connBusy
	}
	return connStepping
}

// announce must come before c is entered for a step of r; it returns the state to enter.
func (r *rows) announce() int32 {
	// The pointer outlives the step: storing it costs as much as entering.
	if r.reader != nil && r.c.reading.Load() != r.reader {
		r.c.reading.Store(r.reader)
	}
	return r.inside()
}

// stepped must come between a step and what is made of its outcome.
func (r *rows) stepped(err error) error {
	if !r.hasEnded() {
		return err
	}
	r.c.reading.Store(nil)
	r.reader.awaitInterrupter()
	return r.reader.ctx.Err()
}

// calm must come after c was left. It waits until nothing can interrupt what follows: the
// context may have ended since the step.
func (r *rows) calm() {
	if r.hasEnded() {
		r.reader.awaitInterrupter()
	}
}

func (r *rows) hasEnded() bool { return r.reader != nil && r.reader.ended.Load() }

// endReader stops the interrupting for good. A reader whose context has not ended serves
// the next query.
func (r *rows) endReader() {
	d := r.reader
	if d == nil || d.halt == nil {
		return
	}
	halted := d.halt()
	d.halt = nil
	if halted {
		d.ctx = nil
		r.c.spare.Store(d)
		return
	}
	close(d.over)
	d.awaitInterrupter()
}

// awaitInterrupter returns when whoever may have seen a step of d is done with it.
func (d *reader) awaitInterrupter() {
	d.c.stop.Lock()
	d.c.stop.Unlock() //lint:ignore SA2001 the interrupter is inside, or will see that there is no step
	d.pending.Wait()
}

// interruptSteps runs from the end of the context to that of the result set.
func (d *reader) interruptSteps() {
	d.ended.Store(true)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.over:
			return
		case <-timer.C:
		}
		d.c.stop.Lock()
		// The state is read first: a step of d that begins between the two is d's.
		if d.c.state.Load() == connStepping && d.c.reading.Load() == d && !d.c.stop.disposed {
			d.c.raw.stop(&d.pending)
		}
		d.c.stop.Unlock()
		timer.Reset(interruptEvery)
	}
}
