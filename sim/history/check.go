package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// An Invariant is a sentence that must be true of every history.
type Invariant string

// The invariants, each with a check of its own.
const (
	WellFormed           Invariant = "the history is well formed"
	ProvableTenure       Invariant = "no call is acknowledged outside a provable tenure"
	Durable              Invariant = "nothing acknowledged before a committed copy is missing after it"
	SupersededIsNowhere  Invariant = "nothing that a superseded holder committed after its successor's grant is in any later ledger"
	EpochsInOrder        Invariant = "the epochs of a tenant are 1, 2, 3, …"
	ForgottenStays       Invariant = "a forgotten tenant stays forgotten"
	ServesAgain          Invariant = "a fleet whose faults end serves again within a bounded time"
	NothingInvented      Invariant = "a ledger holds what clients wrote, each once, and nothing that was refused"
	LogLinearizable      Invariant = "the log is linearizable"
	RegisterLinearizable Invariant = "the register is linearizable"
)

// A Violation is an invariant that a history breaks.
type Violation struct {
	Invariant Invariant
	Tenant    string
	At        time.Duration // when it could first be seen
	Text      string
	Evidence  []Event // what it is seen from
}

// String has a line for the violation and one for each piece of evidence.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: not so for %s at %v: %s", v.Invariant, v.Tenant, v.At.Round(time.Millisecond), v.Text)
	for _, e := range v.Evidence {
		b.WriteString("\n    " + e.String())
	}
	return b.String()
}

// Check returns every violation that it finds, ordered by tenant, invariant and time; none means that the
// history is one that a fleet which keeps its promise can have. If the history is not well formed, that is
// the only violation, since nothing follows from it.
//
// A tenant's search for a linearization that takes longer than a minute is reported as a violation
// that says so; everything else takes time in proportion to the values that were read.
func Check(h History) []Violation {
	if err := h.Validate(); err != nil {
		return []Violation{{Invariant: WellFormed, Text: err.Error()}}
	}
	var all []Violation
	for _, t := range byTenant(h) {
		all = append(all, t.checkTenure()...)
		all = append(all, t.checkEpochs()...)
		all = append(all, t.checkHonest()...)
		all = append(all, t.checkDurable()...)
		all = append(all, t.checkSuperseded()...)
		all = append(all, t.checkForgotten()...)
		all = append(all, t.checkServes(h)...)
		all = append(all, t.checkLinearizable(LogLinearizable)...)
		all = append(all, t.checkLinearizable(RegisterLinearizable)...)
	}
	return all
}

// An operation is an invocation with what became of it.
type operation struct {
	Event         // the return, or the invocation if there was none
	value  string // of the invocation
	began  int    // indexes into the history; ended, after which it has no effect, is its length
	ended  int    // if nobody knows
	invoke Event
}

func (o *operation) ok() bool     { return o.Outcome == OK }
func (o *operation) failed() bool { return o.Outcome == Failed }

// A seen event is one with its index in the history.
type seen struct {
	Event
	index int
}

// A tenantHistory is what a history says of one tenant.
type tenantHistory struct {
	name string
	end  int          // length of the whole history
	ops  []*operation // in the order of their invocations

	grants, ends, commits, raises, damages []seen
}

// byTenant returns the tenants in the order of their names.
func byTenant(h History) []*tenantHistory {
	tenants := make(map[string]*tenantHistory)
	open := make(map[uint64]*operation)
	for i, e := range h {
		if e.Tenant == "" {
			continue
		}
		t := tenants[e.Tenant]
		if t == nil {
			t = &tenantHistory{name: e.Tenant, end: len(h)}
			tenants[e.Tenant] = t
		}
		switch e.Kind {
		case Invoke:
			o := &operation{Event: e, value: e.Value, began: i, ended: len(h), invoke: e}
			open[e.Op] = o
			t.ops = append(t.ops, o)
		case Return:
			o := open[e.Op]
			o.Event = e
			if e.Outcome != Unknown {
				o.ended = i
			}
		case Grant:
			t.grants = append(t.grants, seen{e, i})
		case End:
			t.ends = append(t.ends, seen{e, i})
		case Commit:
			t.commits = append(t.commits, seen{e, i})
		case Raise:
			t.raises = append(t.raises, seen{e, i})
		case Damage:
			t.damages = append(t.damages, seen{e, i})
		}
	}
	sorted := make([]*tenantHistory, 0, len(tenants))
	for _, t := range tenants {
		sorted = append(sorted, t)
	}
	slices.SortFunc(sorted, func(a, b *tenantHistory) int { return strings.Compare(a.name, b.name) })
	return sorted
}

// acknowledged returns the calls of these kinds that were, in the order of their
// invocations; all kinds if none is given.
func (t *tenantHistory) acknowledged(calls ...Call) []*operation {
	var found []*operation
	for _, o := range t.ops {
		if o.ok() && (len(calls) == 0 || slices.Contains(calls, o.Call)) {
			found = append(found, o)
		}
	}
	return found
}

func (t *tenantHistory) violation(i Invariant, at Event, evidence []Event, format string, args ...any) Violation {
	return Violation{Invariant: i, Tenant: t.name, At: at.At, Text: fmt.Sprintf(format, args...), Evidence: evidence}
}

// grantOf returns the grant of an epoch.
func (t *tenantHistory) grantOf(epoch coord.Epoch) (seen, bool) {
	i := slices.IndexFunc(t.grants, func(g seen) bool { return g.Epoch == epoch })
	if i < 0 {
		return seen{}, false
	}
	return t.grants[i], true
}

// attempts returns every call that may have written each value.
func (t *tenantHistory) attempts() map[string][]*operation {
	found := make(map[string][]*operation)
	for _, o := range t.ops {
		if o.Call == Append || o.Call == Set {
			found[o.value] = append(found[o.value], o)
		}
	}
	return found
}
