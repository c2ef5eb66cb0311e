package router

import (
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// An EventKind says what happened.
type EventKind string

// The kinds of events, in the order in which a tenure can meet them.
const (
	EventAcquired       EventKind = "acquired"        // a lease was granted
	EventRestored       EventKind = "restored"        // the ledger is in place; From and Skipped say out of what
	EventRenewed        EventKind = "renewed"         // the fence moved
	EventRenewFailed    EventKind = "renew_failed"    // it did not, for the first time in a row or for the first time behind the fence; Code says why
	EventSnapshot       EventKind = "snapshot"        // copy Seq was committed
	EventSnapshotFailed EventKind = "snapshot_failed" // no copy was committed; Code says why
	EventProved         EventKind = "proved"          // copy From was restored for proof
	EventProofFailed    EventKind = "proof_failed"    // it could not be; Code says why
	EventDrainTimeout   EventKind = "drain_timeout"   // InFlight calls outlasted a drain; the tenant serves again
	EventLost           EventKind = "lost"            // the tenure ended without being released
	EventReleased       EventKind = "released"        // the tenure was given up; Flushed says whether the last copy has every write
)

// An Event is something that happened to a tenure. It carries no personal data.
type Event struct {
	Time  time.Time // calendar time on this replica
	Kind  EventKind
	Key   coord.Key
	Epoch coord.Epoch

	From     *copystore.Ref      // EventRestored, EventProved, EventProofFailed: the copy; nil for a new ledger
	Skipped  []coord.SkippedCopy // EventRestored: newer copies that were not trusted
	Seq      uint64              // EventSnapshot
	Code     coord.Code          // EventRenewFailed, EventSnapshotFailed, EventProofFailed; EventReleased if the store could not be told
	InFlight int                 // EventDrainTimeout
	// Took is how long it took: EventRestored since the grant, EventRenewed and
	// EventSnapshot the attempt, and a flushed EventReleased from the first call that
	// was refused to the release, which is the pause that this replica causes.
	Took    time.Duration
	Flushed bool // EventReleased

	// Dropped is the number of events before this one that were not delivered
	// because the observer was more than [EventBacklog] events behind.
	Dropped int
}

// EventBacklog is how far an observer may fall behind before events are dropped.
const EventBacklog = 4096

// A dispatcher hands events to the observer one at a time, in order, on a
// goroutine of its own, so that an observer that blocks or panics costs its own
// events and nothing else.
type dispatcher struct {
	observe func(Event)
	onPanic func(any)
	wake    chan struct{} // one slot
	done    chan struct{} // closed when the goroutine has returned

	mu struct {
		sync.Mutex
		queue   []Event
		dropped int
		closed  bool
	}
}

func newDispatcher(observe func(Event), onPanic func(any)) *dispatcher {
	d := &dispatcher{observe: observe, onPanic: onPanic, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go d.run()
	return d
}

// emit never blocks.
func (d *dispatcher) emit(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return
	}
	if len(d.mu.queue) >= EventBacklog {
		d.mu.dropped++
		return
	}
	e.Dropped, d.mu.dropped = d.mu.dropped, 0
	d.mu.queue = append(d.mu.queue, e)
	d.signal()
}

// close lets the goroutine end once it has delivered what is queued. Whoever
// cares whether it did waits for done, with a bound: the observer may block.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.closed = true
	d.signal()
}

func (d *dispatcher) signal() {
	select {
	case d.wake <- struct{}{}:
	default: // a wake-up is already on its way
	}
}

func (d *dispatcher) run() {
	defer close(d.done)
	for range d.wake {
		batch, closed := d.take()
		for _, e := range batch {
			d.deliver(e)
		}
		if closed {
			return
		}
	}
}

func (d *dispatcher) take() (batch []Event, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	batch, d.mu.queue = d.mu.queue, nil
	return batch, d.mu.closed
}

func (d *dispatcher) deliver(e Event) {
	defer func() {
		if p := recover(); p != nil {
			d.onPanic(p)
		}
	}()
	d.observe(e)
}
