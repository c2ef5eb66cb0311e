package history

import (
	"cmp"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

// checkTenure looks at every acknowledgement: some moment between the invocation and
// the return must lie in the tenure that it names.
func (t *tenantHistory) checkTenure() []Violation {
	var all []Violation
	for _, o := range t.acknowledged() {
		grant, granted := t.grantOf(o.Epoch)
		switch {
		case len(t.grants) > 0 && !granted:
			all = append(all, t.violation(ProvableTenure, o.Event, []Event{o.Event}, "epoch %d was never granted", o.Epoch))
		case granted && o.Replica != "" && grant.Replica != "" && o.Replica != grant.Replica:
			all = append(all, t.violation(ProvableTenure, o.Event, []Event{grant.Event, o.Event}, "acknowledged by %s, and epoch %d is %s's", o.Replica, o.Epoch, grant.Replica))
		}
		over := func(e seen) bool {
			if e.Kind == End {
				// A tenure that nobody has followed may still be given back, with nothing left to copy.
				return e.index < o.began && e.Epoch == o.Epoch && o.Call != Handoff
			}
			return e.index < o.began && e.Epoch > o.Epoch
		}
		for _, events := range [][]seen{t.grants, t.ends} {
			if i := slices.IndexFunc(events, over); i >= 0 {
				all = append(all, t.violation(ProvableTenure, o.Event, []Event{events[i].Event, o.invoke, o.Event},
					"acknowledged at epoch %d, which was over when the call began", o.Epoch))
				break
			}
		}
	}
	return append(all, t.checkRealTime()...)
}

// checkRealTime needs no word from the lease store: once a client has heard of an
// epoch, no call that begins later is acknowledged at an older one.
func (t *tenantHistory) checkRealTime() []Violation {
	byEnd := t.acknowledged()
	slices.SortFunc(byEnd, func(a, b *operation) int { return cmp.Compare(a.ended, b.ended) })
	var all []Violation
	var newest *operation
	next := 0
	for _, o := range t.acknowledged() { // by invocation
		for ; next < len(byEnd) && byEnd[next].ended < o.began; next++ {
			if newest == nil || byEnd[next].Epoch > newest.Epoch {
				newest = byEnd[next]
			}
		}
		if newest != nil && newest.Epoch > o.Epoch {
			all = append(all, t.violation(ProvableTenure, o.Event, []Event{newest.Event, o.invoke, o.Event},
				"acknowledged at epoch %d after a client had heard of epoch %d", o.Epoch, newest.Epoch))
		}
	}
	return all
}

// checkEpochs wants each grant to be one above the last, unless an operator raised the
// epoch in between.
func (t *tenantHistory) checkEpochs() []Violation {
	var all []Violation
	var last coord.Epoch
	for _, g := range t.grants {
		raised := coord.Epoch(0)
		for _, r := range t.raises {
			if r.index < g.index && r.Epoch > last {
				raised = max(raised, r.Epoch)
			}
		}
		switch {
		case raised > 0 && g.Epoch <= raised:
			all = append(all, t.violation(EpochsInOrder, g.Event, []Event{g.Event}, "epoch %d was granted after the epoch was raised to %d", g.Epoch, raised))
		case raised == 0 && g.Epoch != last+1:
			all = append(all, t.violation(EpochsInOrder, g.Event, []Event{g.Event}, "epoch %d was granted after epoch %d", g.Epoch, last))
		}
		last = max(last, g.Epoch)
	}
	return all
}

// checkServes wants an acknowledgement for each tenant after the faults ended, in time.
func (t *tenantHistory) checkServes(h History) []Violation {
	var all []Violation
	for i, e := range h {
		if e.Kind != Healed {
			continue
		}
		served := slices.ContainsFunc(t.ops, func(o *operation) bool {
			return o.ok() && o.began > i && o.At <= e.At+e.Within
		})
		// A history that ends before the time is up says nothing yet.
		if !served && h[len(h)-1].At >= e.At+e.Within {
			all = append(all, t.violation(ServesAgain, e, []Event{e}, "no call that began after the faults had ended was acknowledged within %v", e.Within))
		}
	}
	return all
}
