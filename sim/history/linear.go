package history

import (
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
	if len(m.ops) == 0 {
		return nil
	}
	ops := make([]porcupine.Operation, len(m.ops))
	for i, o := range m.ops {
		// The indexes are all different, so no two calls touch by accident.
		ops[i] = porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.began), Return: int64(o.ended)}
		if o.ended == t.end {
			ops[i].Return += int64(i)
		}
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, input, _ any) []any { return m.step(s.(state), input.(*modelOp)) },
		Equal: func(a, b any) bool {
			return a.(state).equal(b.(state))
		},
		Hash: func(s any) uint64 { return s.(state).hash() },
	}
	result, info := porcupine.CheckOperationsVerbose(model.ToModel(), ops, linearTimeout)
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
func firstUnexplained(ops []*modelOp, info porcupine.LinearizationInfo) *modelOp {
	explained := make(map[*modelOp]bool)
	longest := 0
	for _, partial := range info.PartialLinearizationsOperations() {
		for _, order := range partial {
			if len(order) <= longest {
				continue
			}
			longest = len(order)
			clear(explained)
			for _, o := range order {
				explained[o.Input.(*modelOp)] = true
			}
		}
	}
	var first *modelOp
	for _, o := range ops {
		if !explained[o] && (first == nil || o.ended < first.ended) {
			first = o
		}
	}
	return first
}

// A modelOp is a call as the model sees it.
type modelOp struct {
	*operation
	// For a write whose outcome is unknown: the places in which its value was seen
	// afterwards.
	places map[int]bool
	// surely says that the value was seen by a call that began after this one, so that this
	// one took effect, or one of its retries did while it ran.
	surely bool
	holes  int // unseen writes that may have taken effect before this call returned
}

// A model is the specification of a tenant's log, or of its register: the log of
// everything written to it, of which reads see the end.
type model struct {
	ops      []*modelOp
	register bool
	keep     map[string][]coord.Epoch // for values in copies: the epochs of those
}

func newModel(t *tenantHistory, what Invariant) *model {
	write, read := Append, Read
	m := &model{register: what == RegisterLinearizable, keep: make(map[string][]coord.Epoch)}
	if m.register {
		write, read = Set, Get
	}
	for _, must := range t.obligations(write) {
		m.keep[must.value] = append(m.keep[must.value], must.epoch)
	}
	sightings := t.sightings(write, read)
	var unseen []*operation
	for _, o := range t.ops {
		if o.failed() || o.Call != write && o.Call != read && o.Call != Forget {
			continue
		}
		one := &modelOp{operation: o}
		if !o.ok() {
			if o.Call == read {
				continue
			}
			one.places, one.surely = sightings.after(o)
			if o.Call == write && len(one.places) == 0 {
				unseen = append(unseen, o)
				continue
			}
		}
		m.ops = append(m.ops, one)
	}
	if len(m.ops) > 0 && !m.answers() {
		m.ops = nil
	}
	for _, o := range m.ops {
		for _, u := range unseen {
			if u.began < o.ended {
				o.holes++
			}
		}
	}
	return m
}

// answers reports whether there is anything to explain.
func (m *model) answers() bool {
	for _, o := range m.ops {
		if o.ok() && o.Call != Forget {
			return true
		}
	}
	return false
}

// sightings are the places in which values were seen, by value.
type sightings map[string][]sighting

type sighting struct {
	place        int // from 0
	began, ended int
}

func (t *tenantHistory) sightings(write, read Call) sightings {
	all := make(sightings)
	for _, o := range t.acknowledged(write, read) {
		switch {
		case o.Call == write && o.Position > 0:
			all[o.value] = append(all[o.value], sighting{int(o.Position) - 1, o.began, o.ended})
		case o.Call == read:
			for place, v := range o.Values {
				all[v] = append(all[v], sighting{place, o.began, o.ended})
			}
		}
	}
	return all
}

func (s sightings) after(o *operation) (places map[int]bool, surely bool) {
	places = make(map[int]bool)
	for _, one := range s[o.value] {
		if one.ended > o.began {
			places[one.place] = true
			surely = surely || one.began > o.began
		}
	}
	return places, surely
}
