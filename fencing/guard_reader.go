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
// Only while conn.reading names the result set may it be interrupted: whatever else the
// connection does is not its business.
type reader struct {
	ctx     context.Context // nil if it has no end
	halt    func() bool
	over    chan struct{} // closed by end
	ended   atomic.Bool   // ctx has ended; set before the first interrupt
	pending sync.WaitGroup
}

// newReader returns the rows of a query that is about to begin.
func (c *conn) newReader(ctx context.Context) *rows {
	r := &rows{c: c}
	if ctx.Done() != nil {
		r.reader.ctx, r.reader.over = ctx, make(chan struct{})
		r.reader.halt = context.AfterFunc(ctx, r.interruptSteps)
	}
	return r
}

// beginStep announces a step and returns the context for the driver.
func (r *rows) beginStep(ctx context.Context) context.Context {
	if r.reader.ctx == nil {
		return ctx
	}
	r.c.reading.Store(r)
	return context.Background()
}

// endStep waits until nothing can interrupt what follows. The outcome of a step
// that may have been interrupted is not believed.
func (r *rows) endStep(ctx context.Context, err error) error {
	if r.reader.ctx == nil {
		return err
	}
	r.c.reading.Store(nil)
	if !r.reader.ended.Load() {
		return err
	}
	r.c.awaitInterrupter()
	r.reader.pending.Wait()
	return ctx.Err()
}

// awaitInterrupter returns when whoever may have seen the step is done with it.
func (c *conn) awaitInterrupter() {
	c.stop.Lock()
	defer c.stop.Unlock()
}

// step takes one row from the driver.
func (r *rows) step(dest []driver.Value) error {
	if r.reader.ctx == nil {
		return r.inner.Next(dest)
	}
	r.c.reading.Store(r)
	var err error
	if !r.reader.ended.Load() {
		err = r.inner.Next(dest)
	}
	return r.endStep(r.reader.ctx, err)
}

// end stops the interrupting for good.
func (d *reader) end() {
	if d.halt != nil && !d.halt() {
		close(d.over)
	}
	d.halt = nil
}

// interruptSteps runs from the end of the context to that of the result set.
func (r *rows) interruptSteps() {
	r.reader.ended.Store(true)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.reader.over:
			return
		case <-timer.C:
		}
		r.c.stop.Lock()
		if r.c.reading.Load() == r && !r.c.stop.disposed {
			r.c.raw.stop(&r.reader.pending)
		}
		r.c.stop.Unlock()
		timer.Reset(interruptEvery)
	}
}
