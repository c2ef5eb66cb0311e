package model

// openAtOnce is the open of the reference: the list and everything that is read
// after it are one step.
func (m *machine) openAtOnce(s *state, t tenure, o *owner) {
	if !m.has(Lineage) {
		m.newestByName(s, o)
		return
	}
	e := s.newestClaimedBelow(o.epoch, s.floor)
	limit, seen := uint8(MaxCopies), false
	for e > s.floor {
		for seq := limit; seq > 0; seq-- {
			r := refOf(e, seq)
			if !s.store.manifests.has(r) {
				continue
			}
			seen = true
			if s.store.images.has(r) {
				m.restored(o, r, s.imageOf[r-1])
				return
			}
		}
		from := s.originOf[e-1]
		if !s.store.origins.has(e) || from == 0 && seen {
			m.stuck(s, t, o)
			return
		}
		if from == 0 {
			break
		}
		e, limit = from.epoch(), from.seq()
	}
	m.restored(o, 0, 0)
}

func (m *machine) stuck(s *state, t tenure, o *owner) {
	o.at = atStuck
	if s.holds(t) {
		m.verdict = m.refusal(s, t)
	}
}

func (s *state) newestClaimedBelow(e, floor epoch) epoch {
	for e--; e > floor; e-- {
		if s.store.origins.has(e) {
			return e
		}
	}
	return 0
}
