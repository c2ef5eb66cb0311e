package history

import (
	"slices"
	"sync"
	"time"
)

// A Recorder collects the events of a run. It is safe for concurrent use: events are stamped
// and kept in one order.
type Recorder struct {
	now func() time.Duration
	mu  struct {
		sync.Mutex
		events History
		op     uint64
	}
}

// NewRecorder returns a recorder on a clock that never goes back, such as the time
// since the run began, or a simulated one. Now must not call the recorder.
func NewRecorder(now func() time.Duration) *Recorder { return &Recorder{now: now} }

// Record stamps an event with the time and keeps it; what At holds is overwritten.
func (r *Recorder) Record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordLocked(e)
}

func (r *Recorder) recordLocked(e Event) {
	e.At = r.now()
	r.mu.events = append(r.mu.events, e)
}

// Invoke records the beginning of a call, of which Tenant, Client, Call and Value are used. It returns
// the event under which [Recorder.Return] records the end.
func (r *Recorder) Invoke(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.op++
	e = Event{Kind: Invoke, Tenant: e.Tenant, Client: e.Client, Op: r.mu.op, Call: e.Call, Value: e.Value}
	r.recordLocked(e)
	return e
}

// Return records the end of a call: began is what Invoke returned, and the rest comes from e.
func (r *Recorder) Return(began, e Event) {
	e.Kind, e.Tenant, e.Client, e.Op, e.Call, e.Value = Return, began.Tenant, began.Client, began.Op, began.Call, began.Value
	r.Record(e)
}

// History returns a copy of what was recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.events)
}
