package sim

import (
	"cmp"
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A clock is what a process takes for the time: it runs at a rate of its own from an
// offset of its own, and a look at it from a gate is a point at which the process may be
// stopped.
type clock struct {
	proc   *process
	rate   float64 // local time per true time
	offset time.Duration
}

var _ coord.ContextClock = (*clock)(nil)

// epochStart is the calendar time of every beginning.
var epochStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// never is after every fence: what a process that is gone sees.
const never = time.Duration(1) << 61

func (c *clock) local() time.Duration {
	return c.offset + time.Duration(float64(c.proc.world.now())*c.rate)
}

// trueAt is when the clock will show t.
func (c *clock) trueAt(t time.Duration) time.Duration {
	at := time.Duration(float64(t-c.offset) / c.rate)
	for c.offset+time.Duration(float64(at)*c.rate) < t {
		at++
	}
	return at
}

// Now implements [coord.Clock].
func (c *clock) Now() time.Duration {
	w := c.proc.world
	site := ""
	if !w.probing.Load() {
		site = gateSite()
	}
	if site != "" {
		w.yield(c.proc, site, w.whose())
	}
	if c.proc.isGone() {
		return never
	}
	now := c.local()
	if site == commitSite {
		w.yield(c.proc, committingSite, w.whose())
	}
	return now
}

// Quick implements [coord.Clock].
func (c *clock) Quick() time.Duration {
	if c.proc.isGone() {
		return never
	}
	return c.local()
}

// Wall implements [coord.Clock].
func (c *clock) Wall() time.Time { return epochStart.Add(c.local()) }

const (
	commitSite     = "gate.commit"     // before the proof inside a commit
	committingSite = "gate.committing" // between that proof and the commit
)

// gateSites are the callers of a gate at which a process can be stopped.
var gateSites = []struct{ suffix, site string }{
	{"(*rawConn).onCommit", commitSite},
	{"(*conn).settle", "gate.settle"},
	{"(*Handle).Run", "gate.run"},
	{"(*Handle).prepare", "gate.serve"},
	{"(*Publisher).Publish", "gate.publish"},
	{"(*restoration).run", "gate.restore"},
	{"(*client).", "gate.look"},
	{"(*Lease).CheckRead", "gate.read"},
}

// gateSite says for whom the gate looks at the clock, and is empty for every other look.
func gateSite() string {
	var pcs [10]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	frame, more := frames.Next()
	if !strings.HasSuffix(frame.Function, "(*Lease).Check") {
		return ""
	}
	for more {
		frame, more = frames.Next()
		for _, s := range gateSites {
			if strings.Contains(frame.Function, s.suffix) {
				return s.site
			}
		}
	}
	return "gate.other"
}

// A timer belongs to a process and fires by its clock, when the scheduler lets it.
type timer struct {
	proc    *process
	due     time.Duration // true time
	site    string
	arrived int
	c       chan time.Time
	fire    func() // in place of c
}

func compareTimers(a, b *timer) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.arrived, b.arrived),
		cmp.Compare(a.proc.id, b.proc.id), cmp.Compare(a.site, b.site))
}

// NewTimer implements [coord.Clock].
func (c *clock) NewTimer(d time.Duration) coord.Timer {
	return c.schedule(d, callerName(), nil)
}

func (c *clock) schedule(d time.Duration, site string, fire func()) *timer {
	w := c.proc.world
	t := &timer{proc: c.proc, site: strings.TrimSpace(site + " " + w.whose()), c: make(chan time.Time, 1), fire: fire}
	t.due = c.trueAt(c.local() + max(d, 0))
	w.mu.Lock()
	defer w.mu.Unlock()
	t.arrived = w.step
	if !c.proc.gone {
		w.mu.newTimers = append(w.mu.newTimers, t)
	}
	return t
}

// callerName is the function that asked for a timer.
func callerName() string {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	frame, _ := runtime.CallersFrames(pcs[:]).Next()
	return frame.Function[strings.LastIndexByte(frame.Function, '/')+1:]
}

// C implements [coord.Timer].
func (t *timer) C() <-chan time.Time { return t.c }

// Stop implements [coord.Timer].
func (t *timer) Stop() {
	w := t.proc.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stopped[t] = true
}

// WithTimeout implements [coord.ContextClock].
func (c *clock) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx := &timedContext{Context: parent, done: make(chan struct{})}
	stopParent := context.AfterFunc(parent, func() { ctx.end(parent.Err()) })
	t := c.schedule(d, callerName(), func() { ctx.end(context.DeadlineExceeded) })
	return ctx, func() {
		stopParent()
		t.Stop()
		ctx.end(context.Canceled)
	}
}

// A timedContext ends by a simulated clock.
type timedContext struct {
	context.Context // the parent
	done            chan struct{}
	mu              struct {
		sync.Mutex
		err error
	}
}

// Done implements [context.Context].
func (c *timedContext) Done() <-chan struct{} { return c.done }

// Err implements [context.Context].
func (c *timedContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// Deadline implements [context.Context]: the real one is on another clock.
func (c *timedContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *timedContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err == nil {
		c.mu.err = err
		close(c.done)
	}
}
