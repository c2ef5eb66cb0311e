package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A Kind says what an event is.
type Kind string

// The kinds of events. Beside each are the fields that it has, At apart.
const (
	Invoke Kind = "invoke" // Tenant, Client, Op, Call, Value: a client begins a call
	Return Kind = "return" // Tenant, Client, Op, Call, Outcome: it ends; with [OK] Epoch, and Replica, Position or Values where there are any; else Code

	Grant  Kind = "grant"  // Tenant, Replica, Epoch: the lease store granted a tenure
	End    Kind = "end"    // Tenant, Epoch: a tenure is over; Flushed says that every acknowledged write of it is in a copy; Text says why
	Commit Kind = "commit" // Tenant, Replica, Epoch, Value: a local ledger, opened at this epoch, has this value
	Raise  Kind = "raise"  // Tenant, Epoch: an operator raised the epoch; the next grant is above this one
	Damage Kind = "damage" // Tenant, Epoch: the environment destroyed copies of this epoch, so they promise nothing any more

	Fault  Kind = "fault"  // Replica if it hits one, Text: the nemesis did something, up to its Heal with the same Text and Replica
	Heal   Kind = "heal"   // Replica, Text: one fault ended
	Healed Kind = "healed" // Within: every fault has ended; each tenant must have served within this time
)

// A Call is what a client asks for.
type Call string

// The calls of clients; the package comment says what each means.
const (
	Append   Call = "append"
	Read     Call = "read"
	Set      Call = "set"
	Get      Call = "get"
	Snapshot Call = "snapshot"
	Handoff  Call = "handoff"
	Forget   Call = "forget"
)

// An Outcome is what the client knows when its call returns.
type Outcome string

// The outcomes of calls.
const (
	OK      Outcome = "ok"      // acknowledged
	Failed  Outcome = "failed"  // certain to have had no effect, now and later
	Unknown Outcome = "unknown" // anything else
)

// An Event is one thing that was seen. Its kind decides which fields count; the others
// are zero.
type Event struct {
	At      time.Duration `json:"at"` // since the beginning, in nanoseconds
	Kind    Kind          `json:"kind"`
	Tenant  string        `json:"tenant,omitempty"`
	Replica string        `json:"replica,omitempty"`
	Epoch   coord.Epoch   `json:"epoch,omitempty"`

	Client   int      `json:"client,omitempty"`
	Op       uint64   `json:"op,omitempty"` // unique for each invocation; see [Recorder.Invoke]
	Call     Call     `json:"call,omitempty"`
	Value    string   `json:"value,omitempty"`
	Outcome  Outcome  `json:"outcome,omitempty"`
	Position uint64   `json:"position,omitempty"` // of the value in the log, from 1; 0 if that is not known
	Values   []string `json:"values,omitempty"`
	Code     string   `json:"code,omitempty"` // why it did not work

	Flushed bool          `json:"flushed,omitempty"`
	Within  time.Duration `json:"within,omitempty"`
	Text    string        `json:"text,omitempty"`
}

// A History is a run's events in the order in which they were seen.
type History []Event

var (
	kinds    = []Kind{Invoke, Return, Grant, End, Commit, Raise, Damage, Fault, Heal, Healed}
	calls    = []Call{Append, Read, Set, Get, Snapshot, Handoff, Forget}
	outcomes = []Outcome{OK, Failed, Unknown}
)

// Validate reports what is missing in an event, all of it together.
func (e Event) Validate() error {
	var all []error
	demand := func(ok bool, what string) {
		if !ok {
			all = append(all, errors.New(what))
		}
	}
	demand(e.At >= 0, "at is negative")
	demand(slices.Contains(kinds, e.Kind), fmt.Sprintf("kind %q is unknown", e.Kind))
	switch e.Kind {
	case Invoke, Return:
		demand(e.Tenant != "", "tenant is empty")
		demand(e.Op > 0, "op is 0")
		demand(slices.Contains(calls, e.Call), fmt.Sprintf("call %q is unknown", e.Call))
		demand(e.Kind == Invoke || slices.Contains(outcomes, e.Outcome), fmt.Sprintf("outcome %q is unknown", e.Outcome))
		demand(e.Kind == Return || e.Value != "" || e.Call != Append && e.Call != Set, "value is empty")
		demand(e.Kind == Invoke || e.Outcome != OK || e.Epoch > 0, "an acknowledgement has no epoch")
	case Grant, End, Commit, Raise, Damage:
		demand(e.Tenant != "", "tenant is empty")
		demand(e.Epoch > 0, "epoch is 0")
	case Fault, Heal:
		demand(e.Text != "", "text is empty")
	case Healed:
		demand(e.Within > 0, "within is not positive")
	}
	return errors.Join(all...)
}

// Validate reports the first event that is not valid, that is earlier than the one before it, or that does not fit to the
// invocation of its operation. A history that ends in the middle is valid.
func (h History) Validate() error {
	var last time.Duration
	open := make(map[uint64]Event)
	seen := make(map[uint64]bool)
	for i, e := range h {
		err := e.Validate()
		switch {
		case err != nil:
		case e.At < last:
			err = fmt.Errorf("it is at %v, and the one before it at %v", e.At, last)
		case e.Kind == Invoke && seen[e.Op]:
			err = fmt.Errorf("operation %d was invoked before", e.Op)
		case e.Kind == Invoke:
			open[e.Op], seen[e.Op] = e, true
		case e.Kind == Return:
			began, ok := open[e.Op]
			delete(open, e.Op)
			if !ok || began.Call != e.Call || began.Tenant != e.Tenant {
				err = fmt.Errorf("operation %d was not invoked, or as another one, or has returned before", e.Op)
			}
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
		last = e.At
	}
	return nil
}
