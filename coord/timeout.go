package coord

import (
	"context"
	"time"
)

// A ContextClock is a [Clock] that can end contexts. One that can not leaves it to the
// runtime's timers, which is right for every clock that runs as fast as they do.
type ContextClock interface {
	Clock
	// WithTimeout is [context.WithTimeout] on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// WithTimeout is [context.WithTimeout] by clock, if it is a [ContextClock], and by the
// runtime's timers otherwise.
func WithTimeout(ctx context.Context, clock Clock, d time.Duration) (context.Context, context.CancelFunc) {
	if c, ok := clock.(ContextClock); ok {
		return c.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}
