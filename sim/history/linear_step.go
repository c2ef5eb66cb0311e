package history

import (
	"hash/maphash"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

// A state is what a tenant can be at one moment. Its slice is never written to.
type state struct {
	values []string    // "" is a write that nobody ever saw
	epoch  coord.Epoch // the current one is not below
	floor  coord.Epoch // forgotten up to here
	holes  int         // how many unseen writes were used up
}

func (s state) equal(o state) bool {
	return s.epoch == o.epoch && s.floor == o.floor && s.holes == o.holes && slices.Equal(s.values, o.values)
}

// hash needs to tell apart what a search often meets, and no more.
func (s state) hash() uint64 {
	h := uint64(s.epoch)<<32 ^ uint64(len(s.values))<<8 ^ uint64(s.holes)
	if n := len(s.values); n > 0 {
		h ^= maphash.String(hashSeed, s.values[n-1])
	}
	return h
}

var hashSeed = maphash.MakeSeed()

// step returns every state that a call can leave behind, none if it cannot have
// answered like this.
func (m *model) step(s state, o *modelOp) []any {
	var next []state
	switch {
	case o.Call == Forget:
		next = s.forget(o)
	case !o.ok():
		next = m.unknownWrite(s, o)
	case o.Epoch < s.epoch:
		// An epoch that is over answers nothing.
	default:
		for _, base := range m.at(s, o.Epoch) {
			next = append(next, m.answer(base, o)...)
		}
	}
	states := make([]any, len(next))
	for i, n := range next {
		states[i] = n
	}
	return states
}

// at returns what the tenant can be at an epoch: itself, or, after a change of owners, any
// beginning of its log that the copies allow.
func (m *model) at(s state, epoch coord.Epoch) []state {
	if epoch == s.epoch {
		return []state{s}
	}
	var all []state
	for n := len(s.values); n >= m.kept(s); n-- {
		cut := s
		cut.values, cut.epoch = s.values[:n], epoch
		all = append(all, cut)
	}
	return all
}

// kept is how much of the log no change of owners can lose.
func (m *model) kept(s state) int {
	for n := len(s.values); n > 0; n-- {
		for _, epoch := range m.keep[s.values[n-1]] {
			if epoch <= s.epoch && epoch > s.floor {
				return n
			}
		}
	}
	return 0
}

// answer checks an acknowledged call against the one log that it was answered from.
func (m *model) answer(s state, o *modelOp) []state {
	switch o.Call {
	case Read:
		if slices.Equal(s.values, o.Values) {
			return []state{s}
		}
	case Get:
		n := len(s.values)
		if n == 0 && len(o.Values) == 0 || n > 0 && len(o.Values) == 1 && s.values[n-1] == o.Values[0] {
			return []state{s}
		}
	case Set:
		return []state{s.with(o.value)}
	case Append:
		if i := slices.Index(s.values, o.value); i >= 0 {
			if o.Position == 0 || o.Position == uint64(i+1) {
				return []state{s} // a retry
			}
			return nil
		}
		place := len(s.values)
		if o.Position > 0 {
			place = int(o.Position) - 1
		}
		return s.place(o, place)
	}
	return nil
}

func (s state) with(value string) state {
	s.values = append(s.values[:len(s.values):len(s.values)], value)
	return s
}

// place appends a value so that it comes to stand in a place. What is missing before it must
// be writes that nobody saw.
func (s state) place(o *modelOp, place int) []state {
	missing := place - len(s.values)
	if missing < 0 || missing > 0 && s.holes+missing > o.holes {
		return nil
	}
	s.holes += missing
	for range missing {
		s = s.with("")
	}
	return []state{s.with(o.value)}
}

// unknownWrite is a write of which nobody was told whether it took effect, but whose
// value was seen. It may have come after a change of owners that nothing else shows.
func (m *model) unknownWrite(s state, o *modelOp) []state {
	var next []state
	there := !m.register && slices.Contains(s.values, o.value)
	if there || !o.surely {
		next = append(next, s) // it changed nothing
	}
	if m.register {
		for _, base := range slices.Concat([]state{s}, m.at(s, s.epoch+1)) {
			next = append(next, base.with(o.value))
		}
		return next
	}
	for place := range o.places {
		if !there && place >= len(s.values) {
			next = append(next, s.place(o, place)...)
		}
		if cut := s; place < len(s.values) && place >= m.kept(s) && !slices.Contains(s.values[:place], o.value) {
			cut.values, cut.epoch = s.values[:place], s.epoch+1
			next = append(next, cut.with(o.value))
		}
	}
	return next
}

// forget empties the log of every epoch up to the floor.
func (s state) forget(o *modelOp) []state {
	switch {
	case !o.ok():
		return []state{s, {epoch: s.epoch + 1, floor: s.epoch, holes: s.holes}}
	case o.Epoch < s.epoch:
		return nil
	}
	return []state{{epoch: o.Epoch + 1, floor: o.Epoch, holes: s.holes}}
}
