package coord

import "time"

// A Clock is where a holder reads the time that its fence is measured against.
// Implementations are safe for concurrent use.
//
// The fence is sound if, over one TTL, this clock does not run slower than the
// lease store's by more than the margin. Wall-clock steps do not matter: Now is
// monotonic.
type Clock interface {
	// Now returns the time since an arbitrary fixed moment. It never goes back,
	// and it goes on while the host is suspended where the platform offers such a
	// clock.
	Now() time.Duration
	// Quick is for checks that come once per row. It is on the scale of Now and
	// never ahead of it, costs a small part of it, and may lag by the time that
	// the host was suspended since the Clock was made.
	Quick() time.Duration
	// Wall returns the calendar time, for labels in records that people read. No
	// decision rests on it.
	Wall() time.Time
	// NewTimer returns a timer that fires once, d after the call. It may fire
	// late; whoever wakes reads Now again.
	NewTimer(d time.Duration) Timer
}

// A Timer fires once.
type Timer interface {
	// C receives one value when the timer fires.
	C() <-chan time.Time
	// Stop keeps the timer from firing, if it has not yet. It releases what the
	// timer holds and may be called more than once.
	Stop()
}

// SystemClock returns the clock of this host: CLOCK_BOOTTIME on Linux, which also
// advances while the host is suspended, and the runtime's monotonic clock
// elsewhere. Quick is the runtime's clock everywhere.
func SystemClock() Clock {
	// Read in this order, what passes between the two makes Quick lag, not lead.
	offset := monotonicNow()
	return &systemClock{offset: offset, start: time.Now()}
}

type systemClock struct {
	start  time.Time
	offset time.Duration // Now at start
}

func (*systemClock) Now() time.Duration             { return monotonicNow() }
func (c *systemClock) Quick() time.Duration         { return c.offset + time.Since(c.start) }
func (*systemClock) Wall() time.Time                { return time.Now() }
func (*systemClock) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

type systemTimer struct{ t *time.Timer }

func (t systemTimer) C() <-chan time.Time { return t.t.C }
func (t systemTimer) Stop()               { t.t.Stop() }
