package coordtest

import (
	"slices"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A Clock is a [coord.Clock] that stands still until it is told to move. It is
// safe for concurrent use. The zero Clock is ready and starts at zero.
type Clock struct {
	mu struct {
		sync.Mutex
		now    time.Duration
		timers []*manualTimer
	}
}

// Now returns the sum of all advances.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.now
}

// Quick is Now.
func (c *Clock) Quick() time.Duration { return c.Now() }

// Wall returns the first moment of 2001 plus all advances.
func (c *Clock) Wall() time.Time {
	return time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.Now())
}

// Advance moves the clock by d and fires the timers that have come due, earliest
// first.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.now += d
	slices.SortStableFunc(c.mu.timers, func(a, b *manualTimer) int { return int(a.due - b.due) })
	for len(c.mu.timers) > 0 && c.mu.timers[0].due <= c.mu.now {
		c.mu.timers[0].c <- time.Time{}
		c.mu.timers = c.mu.timers[1:]
	}
}

// NewTimer returns a timer that fires when the clock has been advanced by d.
func (c *Clock) NewTimer(d time.Duration) coord.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{clock: c, due: c.mu.now + d, c: make(chan time.Time, 1)}
	if d <= 0 {
		t.c <- time.Time{}
		return t
	}
	c.mu.timers = append(c.mu.timers, t)
	return t
}

type manualTimer struct {
	clock *Clock
	due   time.Duration
	c     chan time.Time
}

func (t *manualTimer) C() <-chan time.Time { return t.c }

func (t *manualTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.clock.mu.timers = slices.DeleteFunc(t.clock.mu.timers, func(o *manualTimer) bool { return o == t })
}

// BubbleClock returns a clock made of package time alone, so that inside
// testing/synctest it is the bubble's clock. Outside it is a poorer
// [coord.SystemClock]: it stands still while the host is suspended.
func BubbleClock() coord.Clock { return bubbleClock{start: time.Now()} }

type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() time.Duration                   { return time.Since(c.start) }
func (c bubbleClock) Quick() time.Duration                 { return c.Now() }
func (c bubbleClock) Wall() time.Time                      { return time.Now() }
func (c bubbleClock) NewTimer(d time.Duration) coord.Timer { return bubbleTimer{time.NewTimer(d)} }

type bubbleTimer struct{ t *time.Timer }

func (t bubbleTimer) C() <-chan time.Time { return t.t.C }
func (t bubbleTimer) Stop()               { t.t.Stop() }
