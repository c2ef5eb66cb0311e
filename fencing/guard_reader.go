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
// An interrupt hits whatever the connection does, and as long as any result set is open on
// it, what it does later too. So only a step of this reader may be interrupted, and its
// caller must hear of it. Both follow from an order:
//
//   - a step sets the state of the connection to the reader's number, runs, sets another
//     state, and only then reads ended;
//   - whoever interrupts sets ended, and only then reads the state, once.
//
// If that reading shows the number, the step is not over, so it will find ended set:
// it waits until the interrupt has come and gone, and its outcome is not believed. If a
// step does not find ended set, then whoever interrupts finds another state, or a later step
// of the same reader.
type reader struct {
	c       *conn
	number  int64
	fire    func() // interruptSteps
	ctx     context.Context
	halt    func() bool
	over    chan struct{} // closed by end
	ended   atomic.Bool   // ctx has ended
	pending sync.WaitGroup
}

// beginRead enters c for a query that does not look like a write.
func (c *conn) beginRead(ctx context.Context, text string, args []driver.NamedValue) (*rows, error) {
	if err := c.beginWith(text, args); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return &rows{c: c, inside: connBusy}, nil
	}
	d := c.spare
	if c.spare = nil; d == nil {
		c.readers++
		d = &reader{c: c, number: connStepping - 1 + c.readers, over: make(chan struct{})}
		d.fire = d.interruptSteps
	}
	d.ctx = ctx
	d.halt = context.AfterFunc(ctx, d.fire)
	c.state.CompareAndSwap(connBusy, d.number) // unless it is condemned
	return &rows{c: c, reader: d, inside: d.number}, nil
}

// endRead leaves c; failed is what the driver said to the query.
func (c *conn) endRead(r *rows, inner driver.Rows, failed error) (driver.Rows, error) {
	out, err := c.addRows(r, inner, failed, r.stepped(failed))
	c.leave()
	return out, err
}

// stepContext is what the driver is told in place of ctx.
func (r *rows) stepContext(ctx context.Context) context.Context {
	if r.reader == nil {
		return ctx
	}
	return context.Background()
}

// stepped must come between a step and what is made of its outcome. Its call is still
// inside, but not to be interrupted any more.
func (r *rows) stepped(err error) error {
	if r.reader == nil {
		return err
	}
	r.c.state.CompareAndSwap(r.inside, connBusy) // unless it is condemned
	if !r.reader.ended.Load() {
		return err
	}
	r.reader.awaitInterrupter()
	return r.reader.ctx.Err()
}

// disown is for a call that has left with its step and then found that the context had
// ended. It enters again because nothing of r is its own outside.
func (r *rows) disown() error {
	r.reader.awaitInterrupter()
	if err := r.c.enter(); err != nil {
		return err
	}
	defer r.c.leave()
	if r.inner == nil {
		return errRowsClosed
	}
	return r.reader.ctx.Err()
}

// calm is for a call that has left without a step.
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
		r.c.spare = d
		return
	}
	close(d.over)
	d.awaitInterrupter()
}

// awaitInterrupter returns when whoever may have seen a step of d is done with it.
func (d *reader) awaitInterrupter() {
	d.c.stop.Lock()
	d.c.stop.Unlock() //lint:ignore SA2001 whoever interrupts is inside, or will see that there is no step
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
		d.interruptStep()
		timer.Reset(interruptEvery)
	}
}

// interruptStep interrupts the step of d that is running, if any. The context has ended.
func (d *reader) interruptStep() {
	d.c.stop.Lock()
	defer d.c.stop.Unlock()
	if d.c.state.Load() == d.number && !d.c.stop.disposed {
		d.c.raw.stop(&d.pending)
	}
}
