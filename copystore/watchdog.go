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

// bounded runs call with a context that also ends when limit passes without
// call reporting progress. It returns after call has.
func bounded(ctx context.Context, clock coord.Clock, limit time.Duration, call func(ctx context.Context, progress func()) error) error {
	stall := &stallError{limit: limit}
	watched, cancel := context.WithCancelCause(ctx)
	var steps atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(watched, clock, limit, &steps, func() { cancel(stall) })
	}()
	err := call(watched, func() { steps.Add(1) })
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
	for {
		before := steps.Load()
		timer := clock.NewTimer(limit)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		if steps.Load() == before {
			expired()
			return
		}
	}
}
