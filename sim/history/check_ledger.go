package history

import (
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

// checkHonest looks at each value that was read: somebody must have asked for it, and
// must not have been told that it was refused.
func (t *tenantHistory) checkHonest() []Violation {
	attempts := t.attempts()
	var all []Violation
	for _, read := range t.acknowledged(Read, Get) {
		twice := make(map[string]bool)
		for _, v := range read.Values {
			mayBe := func(o *operation) bool {
				return o.began < read.ended && !o.failed() && (o.Call == Append) == (read.Call == Read)
			}
			switch {
			case twice[v]:
				all = append(all, t.violation(NothingInvented, read.Event, []Event{read.Event}, "%s is there twice", v))
			case !slices.ContainsFunc(attempts[v], mayBe):
				evidence := []Event{read.Event}
				for _, o := range attempts[v] {
					evidence = append(evidence, o.Event)
				}
				all = append(all, t.violation(NothingInvented, read.Event, evidence, "%s was read, and nobody wrote it, or was told that it failed", v))
			}
			twice[v] = true
		}
	}
	return all
}

// An obligation is a value that must be in every log that is read once the copy that has
// it is known to be committed.
type obligation struct {
	value string
	epoch coord.Epoch // of the copy
	since int         // index of the event that made it one
	write *operation
	copy  Event
}

// obligations of the log: from copies that a client asked for, and from tenures that ended with
// everything in a copy.
func (t *tenantHistory) obligations(write Call) []obligation {
	var all []obligation
	writes := t.acknowledged(write)
	known := make(map[*operation]int) // indexes into all; a write has one epoch
	promise := func(copy Event, index int, has func(*operation) bool) {
		if t.damaged(copy.Epoch) {
			return
		}
		for _, w := range writes {
			if w.Epoch != copy.Epoch || !has(w) {
				continue
			}
			one := obligation{value: w.value, epoch: copy.Epoch, since: max(index, w.ended), write: w, copy: copy}
			if i, ok := known[w]; !ok {
				known[w] = len(all)
				all = append(all, one)
			} else if one.since < all[i].since {
				all[i] = one
			}
		}
	}
	everything := func(*operation) bool { return true }
	for _, o := range t.acknowledged(Snapshot, Handoff) {
		if o.Call == Handoff {
			promise(o.Event, o.ended, everything)
			continue
		}
		promise(o.Event, o.ended, func(w *operation) bool { return w.ended < o.began })
	}
	for _, e := range t.ends {
		if e.Flushed {
			promise(e.Event, e.index, everything)
		}
	}
	return all
}

func (t *tenantHistory) damaged(epoch coord.Epoch) bool {
	return slices.ContainsFunc(t.damages, func(d seen) bool { return d.Epoch == epoch })
}

func (t *tenantHistory) checkDurable() []Violation {
	var all []Violation
	obligations := t.obligations(Append)
	for _, read := range t.acknowledged(Read) {
		there := make(map[string]bool, len(read.Values))
		for _, v := range read.Values {
			there[v] = true
		}
		missing := make(map[string]bool)
		for _, must := range obligations {
			if read.began <= must.since || there[must.value] || missing[must.value] || t.mayBeForgotten(must, read) {
				continue
			}
			missing[must.value] = true
			all = append(all, t.violation(Durable, read.Event, []Event{must.write.Event, must.copy, read.Event}, "%s is missing", must.value))
		}
	}
	return all
}

// mayBeForgotten reports whether a call to forget can have removed a value before it
// was read. One whose outcome is unknown can have done so at any time.
func (t *tenantHistory) mayBeForgotten(must obligation, read *operation) bool {
	return slices.ContainsFunc(t.ops, func(o *operation) bool {
		return o.Call == Forget && o.began < read.ended && !o.failed() && (!o.ok() || o.Epoch >= must.epoch)
	})
}

// checkSuperseded looks at what local ledgers committed when the next epoch was
// granted already.
func (t *tenantHistory) checkSuperseded() []Violation {
	late := make(map[string]seen)
	for _, c := range t.commits {
		if slices.ContainsFunc(t.grants, func(g seen) bool { return g.Epoch > c.Epoch && g.index < c.index }) {
			late[c.Value] = c
		}
	}
	// A retry may have brought the same value to the successor.
	for _, c := range t.commits {
		if l, ok := late[c.Value]; ok && l.index != c.index {
			if !slices.ContainsFunc(t.grants, func(g seen) bool { return g.Epoch > c.Epoch && g.index < c.index }) {
				delete(late, c.Value)
			}
		}
	}
	var all []Violation
	for _, read := range t.acknowledged(Read, Get) {
		for _, v := range read.Values {
			if c, ok := late[v]; ok && read.Epoch > c.Epoch {
				all = append(all, t.violation(SupersededIsNowhere, read.Event, []Event{c.Event, read.Event},
					"%s was committed at epoch %d after a later grant, and is in the ledger of epoch %d", v, c.Epoch, read.Epoch))
			}
		}
	}
	return all
}

// checkForgotten looks at ledgers after a tenant was forgotten for what only the past can
// have written.
func (t *tenantHistory) checkForgotten() []Violation {
	attempts := t.attempts()
	var all []Violation
	for _, forget := range t.acknowledged(Forget) {
		floor := forget.Epoch
		mayBeNew := func(o *operation) bool {
			return !o.failed() && o.ended > forget.began && (!o.ok() || o.Epoch > floor)
		}
		for _, read := range t.acknowledged(Read, Get) {
			if read.Epoch <= floor {
				if read.began > forget.ended {
					all = append(all, t.violation(ForgottenStays, read.Event, []Event{forget.Event, read.Event}, "epoch %d serves, and was forgotten", read.Epoch))
				}
				continue
			}
			for _, v := range read.Values {
				if !slices.ContainsFunc(attempts[v], mayBeNew) {
					all = append(all, t.violation(ForgottenStays, read.Event, []Event{forget.Event, read.Event}, "%s was written before, and is there again", v))
				}
			}
		}
	}
	return all
}
