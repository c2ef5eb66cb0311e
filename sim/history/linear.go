package history

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leaseholddb/leasehold/coord"
)

// linearTimeout bounds the search for one tenant. It takes milliseconds for a history
// that is linearizable, and can take for ever for one that is not.
const linearTimeout = time.Minute

// checkLinearizable looks for an order of a tenant's calls that explains every answer:
// each call at one moment between its invocation and its return.
func (t *tenantHistory) checkLinearizable(what Invariant) []Violation {
	m := newModel(t, what)
	ops := make([]porcupine.Operation, len(m.ops))
	for i, o := range m.ops {
		// The indexes are all different, so no two calls touch by accident.
		ops[i] = porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.began), Return: int64(o.ended)}
	}
	model := porcupine.Model{
		Init:  func() any { return state{} },
		Step:  func(s, input, _ any) (bool, any) { return m.step(s.(state), input.(*operation)) },
		Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
		Hash:  func(s any) uint64 { return s.(state).hash() },
	}
	result, info := porcupine.CheckOperationsVerbose(model, ops, linearTimeout)
	if result == porcupine.Ok {
		return nil
	}
	if result == porcupine.Unknown {
		return []Violation{{Invariant: what, Tenant: t.name, Text: "the search for an order did not end in time, so nothing is known"}}
	}
	stuck := firstUnexplained(m.ops, info)
	return []Violation{t.violation(what, stuck.Event, []Event{stuck.invoke, stuck.Event}, "no order of the calls explains this answer and all before it")}
}

// firstUnexplained is the call that returned first of those that the longest partial
// order leaves out.
func firstUnexplained(ops []*operation, info porcupine.LinearizationInfo) *operation {
	explained := make(map[*operation]bool)
	longest := 0
	for _, partial := range info.PartialLinearizationsOperations() {
		for _, order := range partial {
			if len(order) <= longest {
				continue
			}
			longest = len(order)
			clear(explained)
			for _, o := range order {
				explained[o.Input.(*operation)] = true
			}
		}
	}
	var first *operation
	for _, o := range ops {
		if !explained[o] && (first == nil || o.ended < first.ended) {
			first = o
		}
	}
	return first
}

// A model is the specification of a tenant's log, or of its register: the log of
// everything written to it, of which reads see the end.
//
// Only calls that were acknowledged have a place in the order that is searched for. A write
// whose outcome is unknown is taken to have happened when something can only be explained by
// it, such as its value in a read; the search would otherwise have to try every moment for
// each of them.
type model struct {
	ops      []*operation
	register bool
	keep     map[string][]coord.Epoch // for values in copies: the epochs of those

	unknown map[string]int // for values that writes of unknown outcome have: where the first of those began
	began   []int          // where each of those writes began
	forgets []int          // where each forget of unknown outcome began
}

func newModel(t *tenantHistory, what Invariant) *model {
	write, read := Append, Read
	m := &model{register: what == RegisterLinearizable, keep: make(map[string][]coord.Epoch), unknown: make(map[string]int)}
	if m.register {
		write, read = Set, Get
	}
	for _, must := range t.obligations(write) {
		m.keep[must.value] = append(m.keep[must.value], must.epoch)
	}
	places := t.places()
	for _, o := range t.ops {
		switch {
		case o.failed() || o.Call != write && o.Call != read && o.Call != Forget:
		case o.ok() && o.Call == Append && o.Position == 0:
			if o, ok := places.locate(o); ok {
				m.ops = append(m.ops, o)
				continue
			}
			// Where it came to stand is not known, so it explains reads like any other.
			m.mayHappen(o)
		case o.ok():
			m.ops = append(m.ops, o)
		case o.Call == write:
			m.mayHappen(o)
		case o.Call == Forget:
			m.forgets = append(m.forgets, o.began)
		}
	}
	return m
}

func (m *model) mayHappen(o *operation) {
	if _, known := m.unknown[o.value]; !known {
		m.unknown[o.value] = o.began
	}
	m.began = append(m.began, o.began)
}

// possible reports whether a write of unknown outcome can have brought a value before some
// event.
func (m *model) possible(value string, before int) bool {
	began, ok := m.unknown[value]
	return ok && began < before
}

// unseen counts the writes of unknown outcome that can have taken effect before some
// event.
func (m *model) unseen(before int) int {
	n, _ := slices.BinarySearch(m.began, before)
	return n
}

// places are where reads saw each value, from 1; 0 if they saw it in several places.
type places map[string]uint64

func (t *tenantHistory) places() places {
	all := make(places)
	for _, read := range t.acknowledged(Read) {
		for i, v := range read.Values {
			if at, seen := all[v]; seen && at != uint64(i+1) {
				all[v] = 0
				continue
			}
			all[v] = uint64(i + 1)
		}
	}
	return all
}

// locate gives an append whose client was not told its position the one that reads
// show.
func (p places) locate(o *operation) (*operation, bool) {
	if p[o.value] == 0 {
		return nil, false
	}
	located := *o
	located.Position = p[o.value]
	return &located, true
}
