package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// errGone is what a process that has crashed hears from everything.
var errGone = errors.New("the process is gone")

// A world is one simulated fleet with its stores, its clients and the scheduler. The
// scheduler is the goroutine that made it; fields outside mu are its own, except for those
// that a goroutine of the fleet reads while the scheduler waits for it.
type world struct {
	cfg   Config
	dir   string
	rng   *rand.Rand // of the scheduler alone
	begun time.Time  // in the bubble
	keys  []coord.Key

	step        int
	parked      []*op
	timers      []*timer
	late        []landing     // requests that arrive after their callers gave up
	last        *op           // what went on in the step before
	faults      []Fault       // still to come, in the order of their steps
	armed       []*Fault      // waiting for a call, or for a site
	healing     []healing     // what ends by itself
	calm        bool          // no faults any more
	rolledBack  bool          // the lease store was, at least once
	lastHarm    time.Duration // when the faults ended, or something landed late
	mayRollBack bool          // there is such a fault
	endsInCrash bool          // and not by a shutdown
	over        bool          // clients begin nothing any more
	ended       bool          // everything is being taken down
	probing     atomic.Bool   // the scheduler itself asks the gates

	replicas []*replica
	leases   *leaseServer
	copies   *copyServer
	clients  []*client
	shares   []int // of acts
	hot      bool  // most calls are for one tenant

	idleHandoff time.Duration // after which unused tenants are given up; 0 means never
	timePasses  int           // how often, in percent, although something could go on

	truth  *truth
	events history.History
	stats  Stats
	trace  io.Writer // nil unless somebody wants to watch

	mu struct {
		sync.Mutex
		arrivals  []*op
		newTimers []*timer
		notes     []note
		stopped   map[*timer]bool
		operator  bool // a client has asked for one
	}
	goroutines sync.WaitGroup // of clients and stores
	clientOf   sync.Map       // from the number of a goroutine to that of a client
}

// A landing is a request on its way without a caller.
type landing struct {
	at    time.Duration
	what  string
	apply func()
}

// A healing ends a fault.
type healing struct {
	at    time.Duration
	fault Fault
	undo  func()
}

// now is the true time, which is the lease store's.
func (w *world) now() time.Duration { return time.Since(w.begun) }

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%5d %12s  %s\n", w.step, w.now().Round(time.Microsecond), fmt.Sprintf(format, args...))
	}
}

// settle waits until nothing of the fleet can go on by itself, and takes over what it
// waits for, in an order that does not depend on how its goroutines ran.
func (w *world) settle() {
	synctest.Wait()
	w.takeNotes()
	w.mu.Lock()
	arrivals, timers, stopped := w.mu.arrivals, w.mu.newTimers, w.mu.stopped
	w.mu.arrivals, w.mu.newTimers, w.mu.stopped = nil, nil, make(map[*timer]bool)
	w.mu.Unlock()
	slices.SortStableFunc(arrivals, compareOps)
	w.parked = append(w.parked, arrivals...)
	w.timers = slices.DeleteFunc(append(w.timers, timers...), func(t *timer) bool { return stopped[t] })
	slices.SortStableFunc(w.timers, compareTimers)
}

// run makes steps until n have been made or done says so.
func (w *world) run(n int, done func() bool) {
	for w.settle(); n > 0 && !done(); w.settle() {
		w.probe()
		w.ambush()
		w.step++
		n--
		w.meddle()
		if w.deliverCancellation() {
			continue
		}
		choices := w.choices()
		if len(choices) == 0 || !w.calm && w.rng.IntN(100) < w.timePasses {
			w.passTime(len(choices) == 0)
			continue
		}
		w.take(w.choose(choices))
	}
}

// probe asks every gate whether it is open: at any moment somebody could be acknowledged
// through it.
func (w *world) probe() {
	if len(w.truth.violations()) > 0 {
		return // the first one says it
	}
	w.probing.Store(true)
	defer w.probing.Store(false)
	for _, r := range w.replicas {
		for _, key := range w.keys {
			if r.proc == nil {
				break
			}
			if h := r.proc.router.HandleOf(key); h != nil && h.Check() == nil {
				w.truth.holds(tenureOf(h, r.proc), openGate, "could have acknowledged a call")
			}
		}
	}
}

// deliverCancellation lets one goroutine know that its context has ended.
func (w *world) deliverCancellation() bool {
	for i, o := range w.parked {
		if o.cancelled() && o.proc.runs() {
			o.err = o.ctx.Err()
			if o.stage == waiting && o.hangs {
				w.late = append(w.late, landing{at: w.now() + w.lateness(), what: o.site + " " + o.detail, apply: o.apply})
			}
			w.logf("give up %s %s %s", o.procID(), o.site, o.detail)
			w.wake(i)
			return true
		}
	}
	return false
}

// lateness is how long after its caller gave up a request arrives.
func (w *world) lateness() time.Duration { return w.upTo(4 * w.cfg.TTL) }

// upTo is a random time, short ones as likely as long ones.
func (w *world) upTo(limit time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(limit))) >> w.rng.IntN(8)
}

func (w *world) wake(i int) {
	o := w.parked[i]
	w.parked = slices.Delete(w.parked, i, i+1)
	w.last = o
	o.wake <- struct{}{}
}

// meddle ends and begins the faults whose time has come.
func (w *world) meddle() {
	for len(w.faults) > 0 && w.faults[0].Step <= w.step && !w.calm {
		f := w.faults[0]
		w.faults = w.faults[1:]
		w.begin(f)
	}
	w.heal(func(h healing) bool { return h.at <= w.now() })
	w.mu.Lock()
	asked := w.mu.operator
	w.mu.operator = false
	w.mu.Unlock()
	if asked {
		w.operate()
	}
}

func (w *world) heal(due func(healing) bool) {
	slices.SortStableFunc(w.healing, func(a, b healing) int { return cmp.Compare(a.at, b.at) })
	for i := 0; i < len(w.healing); {
		h := w.healing[i]
		if !due(h) {
			i++
			continue
		}
		w.healing = slices.Delete(w.healing, i, i+1)
		w.logf("ends: %s", h.fault)
		w.record("", history.Event{Kind: history.Heal, Replica: w.replicaName(h.fault), Text: h.fault.String()})
		h.undo()
	}
}
