package history

import (
	"hash/maphash"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

// A slot is one place of a log: a value, or a write of unknown outcome that nobody has
// seen there yet, which began before some event. One with both may be either.
type slot struct {
	value  string
	before int // 0 if it is the value
}

// A state is what a tenant can be at one moment: its log is slots, or any beginning of them that
// has at least the first sure ones. So one state stands for all that a change of owners can have
// left, and each call narrows it down. The slice is never written to.
type state struct {
	slots []slot
	sure  int
	epoch coord.Epoch
	floor coord.Epoch // perhaps forgotten up to here
	holes int         // how many slots ever came to be although nobody had seen a write for them
}

func (s state) equal(o state) bool {
	return s.sure == o.sure && s.epoch == o.epoch && s.floor == o.floor && s.holes == o.holes && slices.Equal(s.slots, o.slots)
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

// step returns what an acknowledged call leaves behind, or false if it cannot have been
// answered like this.
func (m *model) step(s state, o *operation) (bool, state) {
	if o.Epoch < s.epoch {
		return false, s // an epoch that is over answers nothing
	}
	if o.Epoch > s.epoch {
		s = m.moved(s, o)
	}
	switch o.Call {
	case Forget:
		return true, state{epoch: o.Epoch + 1, floor: o.Epoch, holes: s.holes}
	case Read:
		return m.read(s, o)
	case Get:
		return m.get(s, o)
	case Set:
		// What was lost before it may look as if it could come back; only a get can tell.
		s.slots = append(slices.Clip(s.slots), slot{value: o.value})
		s.sure = len(s.slots)
		return true, s
	default:
		return m.append(s, o)
	}
}

// moved changes the owner, which can lose what no copy has, or everything if somebody
// may have made the tenant forgotten.
func (m *model) moved(s state, o *operation) state {
	s.sure = m.kept(s)
	if slices.ContainsFunc(m.forgets, func(began int) bool { return began < o.ended }) {
		s.sure, s.floor = 0, o.Epoch-1
	}
	s.epoch = o.Epoch
	return s
}

// kept is how much of the log no change of owners can lose.
func (m *model) kept(s state) int {
	for n := s.sure; n > 0; n-- {
		for _, epoch := range m.keep[s.slots[n-1].value] {
			if epoch <= s.epoch && epoch > s.floor {
				return n
			}
		}
	}
	return 0
}

// fits reports whether a slot can hold a value.
func (m *model) fits(one slot, value string) bool {
	return one.value == value || m.possible(value, one.before)
}

// read wants the log to begin like the answer, at least as far as it is sure, and the rest of the answer
// to be possible. Then the log is known.
func (m *model) read(s state, o *operation) (bool, state) {
	same := 0
	for same < min(len(s.slots), len(o.Values)) && m.fits(s.slots[same], o.Values[same]) {
		same++
	}
	if same < s.sure {
		return false, s
	}
	s.slots = make([]slot, len(o.Values))
	s.sure = len(o.Values)
	for i, v := range o.Values {
		if i >= same && !m.possible(v, o.ended) {
			return false, s
		}
		s.slots[i].value = v
	}
	return true, s
}

// get is answered with the end of what was written.
func (m *model) get(s state, o *operation) (bool, state) {
	if len(o.Values) == 0 {
		empty := s
		empty.slots = nil
		return s.sure == 0, empty
	}
	one := slot{value: o.Values[0]}
	for n := len(s.slots); n >= max(s.sure, 1); n-- {
		if s.slots[n-1] == one {
			s.slots, s.sure = s.slots[:n], n
			return true, s
		}
	}
	// What was overwritten, or lost, was written already.
	if slices.Contains(s.slots, one) || !m.possible(one.value, o.ended) {
		return false, s
	}
	s.slots = append(slices.Clip(s.slots), one)
	s.sure = len(s.slots)
	return true, s
}

// append wants the value in its place: there before, from a try of unknown outcome, or new,
// after what is left of the log and after writes that nobody has seen.
func (m *model) append(s state, o *operation) (bool, state) {
	one, place := slot{value: o.value}, int(o.Position)-1
	if i := slices.Index(s.slots[:s.sure], one); i >= 0 && i != place {
		return false, s
	}
	found := place < len(s.slots) && m.fits(s.slots[place], o.value)
	if !found && place < s.sure {
		return false, s
	}
	unseen := m.unseen(o.ended) - s.holes
	slots := slices.Clone(s.slots[:min(place, len(s.slots))])
	if unseen > 0 {
		// What may be lost may have been replaced.
		for i := s.sure; i < len(slots); i++ {
			slots[i].before = max(slots[i].before, o.ended)
		}
	}
	missing := place - len(slots)
	if missing > unseen {
		return false, s
	}
	for range missing {
		slots = append(slots, slot{before: o.ended})
	}
	s.holes += missing
	slots = append(slots, one)
	if found {
		slots = append(slots, s.slots[place+1:]...)
	}
	s.slots, s.sure = slots, max(s.sure, place+1)
	return true, s
}
