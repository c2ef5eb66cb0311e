package copystore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A stallError replaces the error of a call that was cancelled for want of
// progress. It hides the context error that the cancellation caused: callers
// would take it for the end of a context of theirs.
type stallError struct {
	limit time.Duration
}

func (e *stallError) Error() string { return fmt.Sprintf("no progress for %v", e.limit) }

type progressKey struct{}

// Progress says that the store call which ctx belongs to is getting on, so that it
// is not taken for a stalled one. A [Store] reports what the reader that Create
// was given cannot show: bytes that leave a buffer, or a wait for a turn that
// will come. It is safe with any context and from any goroutine.
func Progress(ctx context.Context) {
	if step, ok := ctx.Value(progressKey{}).(func()); ok {
		step()
	}
}

// bounded runs call with a context that also ends when limit passes without
// call reporting progress. It returns after call has.
func bounded(ctx context.Context, clock coord.Clock, limit time.Duration, call func(ctx context.Context, progress func()) error) error {
	stall := &stallError{limit: limit}
	watched, cancel := context.WithCancelCause(ctx)
	var steps atomic.Int64
	step := func() { steps.Add(1) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(watched, clock, limit, &steps, func() { cancel(stall) })
	}()
	err := call(context.WithValue(watched, progressKey{}, step), step)
	stalled := context.Cause(watched) == error(stall)
	cancel(nil)
	<-done
	switch {
	case err == nil:
		return nil
	case stalled:
		return stall
	}
	return err
}

// watch calls expired when steps has stood still for limit, and returns then or
// when ctx ends.
func watch(ctx context.Context, clock coord.Clock, limit time.Duration, steps *atomic.Int64, expired func()) {
	for before := int64(0); ; {
		timer := clock.NewTimer(limit)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		now := steps.Load()
		if now == before {
			expired()
			return
		}
		before = now
	}
}

// follow counts the steps of a call, and the call while it is overdue.
func (c *Copies) follow(ctx context.Context, progress func()) (_ context.Context, step, returned func()) {
	step = func() {
		c.moved.Add(1)
		progress()
	}
	stop := context.AfterFunc(ctx, func() { c.overdue.Add(1) })
	return context.WithValue(ctx, progressKey{}, step), step, func() {
		if !stop() {
			c.overdue.Add(-1)
		}
		c.moved.Add(1)
	}
}

// Activity returns a number that changes whenever some call to the store gets on or
// returns, and how many calls have not returned although their context has ended, by its
// owner or for want of progress. A store that heeds contexts has such calls for moments
// only; one on a file system that hangs may have them for ever, and whoever waits for one
// cannot be stopped.
func (c *Copies) Activity() (moved uint64, overdue int) {
	return c.moved.Load(), int(max(0, c.overdue.Load()))
}
