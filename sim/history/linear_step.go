package history

import (
	"hash/maphash"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

// A slot is one place of a log: a value, or a write of unknown outcome that nobody has
// seen yet, which began before some event.
type slot struct {
	value  string
	before int // for a write that nobody has seen
}

// A state is what a tenant can be at one moment. Its slice is never written to.
type state struct {
	slots []slot
	epoch coord.Epoch
	floor coord.Epoch // forgotten up to here
	holes int         // how many slots ever were writes that nobody had seen
}

func (s state) equal(o state) bool {
	return s.epoch == o.epoch && s.floor == o.floor && s.holes == o.holes && slices.Equal(s.slots, o.slots)
}

// hash needs to tell apart what a search often meets, and no more.
func (s state) hash() uint64 {
	h := uint64(s.epoch)<<32 ^ uint64(len(s.slots))<<8 ^ uint64(s.holes)
	if n := len(s.slots); n > 0 {
		h ^= maphash.String(hashSeed, s.slots[n-1].value)
	}
	return h
}

var hashSeed = maphash.MakeSeed()

func (s state) first(n int) state {
	s.slots = s.slots[:n:n]
	return s
}

func (s state) with(one slot) state {
	s.slots = append(s.slots[:len(s.slots):len(s.slots)], one)
	return s
}

// step returns every state that an acknowledged call can leave behind, none if it cannot
// have been answered like this.
func (m *model) step(s state, o *operation) []any {
	if o.Epoch < s.epoch {
		return nil // an epoch that is over answers nothing
	}
	var next []state
	if o.Call == Forget {
		next = []state{{epoch: o.Epoch + 1, floor: o.Epoch, holes: s.holes}}
	} else {
		for _, base := range m.bases(s, o) {
			next = append(next, m.answer(base, o, base.epoch != o.Epoch)...)
		}
	}
	states := make([]any, len(next))
	for i, n := range next {
		n.epoch = max(n.epoch, o.Epoch)
		states[i] = n
	}
	return states
}

// bases are what the tenant can have been when its present owner opened it, before
// the copies are looked at: what it was, or nothing, if somebody may have made it
// forgotten since.
func (m *model) bases(s state, o *operation) []state {
	all := []state{s}
	if o.Epoch > s.epoch && slices.ContainsFunc(m.forgets, func(began int) bool { return began < o.ended }) {
		all = append(all, state{epoch: o.Epoch - 1, floor: o.Epoch - 1, holes: s.holes})
	}
	return all
}

// kept is how much of the log no change of owners can lose.
func (m *model) kept(s state) int {
	for n := len(s.slots); n > 0; n-- {
		for _, epoch := range m.keep[s.slots[n-1].value] {
			if epoch <= s.epoch && epoch > s.floor {
				return n
			}
		}
	}
	return 0
}

// answer checks an acknowledged call against one log. Moved says that the owner has changed, so
// that the log may have lost its end.
func (m *model) answer(s state, o *operation, moved bool) []state {
	least := len(s.slots)
	if moved {
		least = m.kept(s)
	}
	switch o.Call {
	case Read:
		return m.read(s, o, least)
	case Get:
		return m.get(s, o, least)
	case Set:
		// What was lost before it may look as if it could come back; only a read can tell.
		return []state{s.with(slot{value: o.value})}
	default:
		return m.append(s, o, least)
	}
}

// fits reports whether a slot can hold a value.
func (m *model) fits(one slot, value string) bool {
	return one.value == value || one.value == "" && m.possible(value, one.before)
}

// read wants the log to begin like the answer, at least as far as it cannot have been lost, and
// the rest to be possible.
func (m *model) read(s state, o *operation, least int) []state {
	same := 0
	for same < min(len(s.slots), len(o.Values)) && m.fits(s.slots[same], o.Values[same]) {
		same++
	}
	if same < least {
		return nil
	}
	next := s
	next.slots = make([]slot, len(o.Values))
	for i, v := range o.Values {
		if i >= same && !m.possible(v, o.ended) {
			return nil
		}
		next.slots[i].value = v
	}
	return []state{next}
}

// get is answered with the end of what was written.
func (m *model) get(s state, o *operation, least int) []state {
	if len(o.Values) == 0 {
		if least == 0 {
			return []state{s.first(0)}
		}
		return nil
	}
	v := o.Values[0]
	for n := len(s.slots); n >= max(least, 1); n-- {
		if s.slots[n-1].value == v {
			return []state{s.first(n)}
		}
	}
	// Once it was overwritten or lost, it was written already.
	if !slices.Contains(s.slots, slot{value: v}) && m.possible(v, o.ended) {
		return []state{s.with(slot{value: v})}
	}
	return nil
}

// append wants the value in its place: there before, from a try of unknown outcome, or new,
// after what is left of the log and after writes that nobody has seen.
func (m *model) append(s state, o *operation, least int) []state {
	place := int(o.Position) - 1
	var next []state
	if i := slices.Index(s.slots, slot{value: o.value}); i >= 0 && i != place && i < least {
		return nil
	}
	if place < len(s.slots) && m.fits(s.slots[place], o.value) {
		found := s
		found.slots = slices.Clone(s.slots)
		found.slots[place] = slot{value: o.value}
		for n := max(least, place+1); n <= len(s.slots); n++ {
			next = append(next, found.first(n))
		}
	}
	for n := least; n <= min(place, len(s.slots)); n++ {
		missing := place - n
		if s.holes+missing > m.unseen(o.ended) || slices.Contains(s.slots[:n], slot{value: o.value}) {
			continue
		}
		fresh := s.first(n)
		fresh.holes += missing
		for range missing {
			fresh = fresh.with(slot{before: o.ended})
		}
		next = append(next, fresh.with(slot{value: o.value}))
	}
	return next
}
