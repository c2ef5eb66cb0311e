package model

import (
	"fmt"
	"strings"
)

// beginning says what is wrong with tenure t beginning to serve in s.
func (m *machine) beginning(s *state, t tenure) string {
	o := s.owner(t)
	alive := func(e epoch) bool { return e > m.floorOf(s, o) }
	if o.warned {
		return fmt.Sprintf("tenure %d serves although it was known, when it listed, that the lease store forgot grants", t)
	}
	if later := s.later(t); later > 0 {
		return fmt.Sprintf("tenure %d begins to serve although tenure %d serves", t, later)
	}
	for g := tenure(1); g < t; g++ {
		if !o.started.has(g) || !alive(s.owner(g).epoch) {
			continue
		}
		if extra := o.content & before(g) &^ s.beganWith[g-1]; extra != 0 {
			return fmt.Sprintf("tenure %d forks: it has %s, which tenure %d did not start with", t, extra, g)
		}
	}
	for r := ref(1); r <= maxRef; r++ {
		if !o.report.has(r) || !alive(r.epoch()) {
			continue
		}
		if o.from == 0 {
			return fmt.Sprintf("tenure %d starts empty although copy %s was reported as committed", t, r)
		}
		if missing := s.reportedOf[r-1] &^ o.content; missing != 0 && (!s.damaged() || s.intact(r)) {
			return fmt.Sprintf("tenure %d lost %s of copy %s, which was reported as committed", t, missing, r)
		}
	}
	if late := o.content & s.tainted & before(t); late != 0 {
		return fmt.Sprintf("tenure %d starts with %s, which landed after its owner was superseded", t, late)
	}
	for g := tenure(1); g < t; g++ {
		if dead := o.content & (acknowledged(g) | paused(g)); dead != 0 && !alive(s.owner(g).epoch) {
			return fmt.Sprintf("tenure %d starts with %s, which was forgotten", t, dead)
		}
	}
	return ""
}

// floorOf is the floor that o's ledger has to respect: that of its grant. The
// reference looks at the present one.
func (m *machine) floorOf(s *state, o *owner) epoch {
	if m.follows(OpenAtOnce) {
		return s.floor
	}
	return o.floor
}

// refusal says what is wrong with tenure t being refused while it holds the lease.
func (m *machine) refusal(s *state, t tenure) string {
	o := s.owner(t)
	if s.rollbacks > 0 {
		return ""
	}
	if !s.damaged() {
		return fmt.Sprintf("tenure %d is refused although nothing is damaged and the lease store forgot nothing", t)
	}
	if s.bad.origins != 0 || s.noOrigin+s.noManifest > 0 {
		return ""
	}
	for r := ref(1); r <= maxRef; r++ {
		if o.report.has(r) && r.epoch() > o.floor && s.intact(r) {
			return fmt.Sprintf("tenure %d is refused although copy %s is intact", t, r)
		}
	}
	return ""
}

// acknowledging says what is wrong with tenure t being acknowledged in s.
func (m *machine) acknowledging(s *state, t tenure) string {
	if later := s.later(t); later > 0 {
		return fmt.Sprintf("tenure %d acknowledges although tenure %d serves", t, later)
	}
	return ""
}

// later returns a tenure after t that has begun to serve, 0 if there is none.
func (s *state) later(t tenure) tenure {
	for g := t + 1; g <= s.granted; g++ {
		if s.began.has(g) {
			return g
		}
	}
	return 0
}

// String names a copy by its place in the store.
func (r ref) String() string { return fmt.Sprintf("e%d/snap-%d", r.epoch(), r.seq()) }

// String names the writes by their tenures.
func (w writes) String() string {
	var names []string
	for t := tenure(1); t <= MaxTenures; t++ {
		if w&acknowledged(t) != 0 {
			names = append(names, fmt.Sprintf("the write of tenure %d", t))
		}
		if w&paused(t) != 0 {
			names = append(names, fmt.Sprintf("the paused commit of tenure %d", t))
		}
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, " and ")
}
