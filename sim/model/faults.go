package model

import "slices"

// damage is what a copy store can do to the tenant's objects, and what other hands
// can.
func (m *machine) damage(s *state) {
	if int(s.corrupted) < m.Corrupted {
		m.corrupt(s)
	}
	for r := ref(1); r <= maxRef; r++ {
		if int(s.lost) < m.Lost && s.store.images.has(r) {
			m.to(s, lose, 0, imageAt+uint8(r), func(n *state, _ *owner) { n.lost++; n.deleteImage(r) })
		}
		if int(s.lost) < m.Lost && s.store.manifests.has(r) && s.named(r) {
			m.to(s, lose, 0, copyAt+uint8(r), func(n *state, _ *owner) { n.lost++; n.deleteManifest(r); n.deleteImage(r) })
		}
		if int(s.noManifest) < m.RemovedManifests && s.store.manifests.has(r) {
			m.to(s, remove, 0, manifestAt+uint8(r), func(n *state, _ *owner) { n.noManifest++; n.deleteManifest(r) })
		}
	}
	for e := epoch(1); e <= MaxTenures; e++ {
		if int(s.noOrigin) < m.RemovedOrigins && s.store.origins.has(e) {
			m.to(s, remove, 0, originAt+e, func(n *state, _ *owner) { n.noOrigin++; n.deleteOrigin(e) })
		}
	}
}

// named reports whether an origin says that a tenure started from r.
func (s *state) named(r ref) bool { return slices.Contains(s.originOf[:], r) }

func (m *machine) corrupt(s *state) {
	for r := ref(1); r <= maxRef; r++ {
		if s.store.manifests.has(r) && !s.bad.manifests.has(r) {
			m.to(s, corrupt, 0, manifestAt+uint8(r), func(n *state, _ *owner) { n.corrupted++; n.bad.manifests = n.bad.manifests.with(r) })
		}
		if s.store.images.has(r) && !s.bad.images.has(r) {
			m.to(s, corrupt, 0, imageAt+uint8(r), func(n *state, _ *owner) { n.corrupted++; n.bad.images = n.bad.images.with(r) })
		}
	}
	for e := epoch(1); e <= MaxTenures; e++ {
		if s.store.origins.has(e) && !s.bad.origins.has(e) {
			m.to(s, corrupt, 0, originAt+e, func(n *state, _ *owner) { n.corrupted++; n.bad.origins = n.bad.origins.with(e) })
		}
	}
}

// rollbacks is a lease store that comes back as an older backup knew it, and the
// operator who raises the epoch above all copies once an open was refused.
func (m *machine) rollbacks(s *state) {
	if int(s.rollbacks) < m.Rollbacks {
		for e := epoch(0); e < s.counter; e++ {
			m.to(s, rollBack, 0, e, func(n *state, _ *owner) {
				n.rollbacks++
				n.counter = e
				switch {
				case !m.has(LeasesOver):
					n.forgotten = n.holder
				case m.has(CallsOver):
					for t := range n.owners {
						n.owners[t].at = atDead
					}
				}
				n.holder = 0
			})
		}
	}
	if s.forgotten > 0 {
		m.to(s, forgetLease, 0, s.forgotten, func(n *state, _ *owner) { n.forgotten = 0 })
	}
	m.operate(s)
}

const (
	idle   = iota
	looked // at the copies
	halfway
)

func (m *machine) operate(s *state) {
	raise := func(next uint8) {
		if s.holder > 0 {
			return // refused while somebody holds the tenant
		}
		m.to(s, raiseEpoch, 0, s.newest, func(n *state, _ *owner) {
			n.counter = max(s.counter, s.newest)
			n.operated(next)
		})
	}
	clear := func(next uint8) {
		m.to(s, clearMark, 0, 0, func(n *state, _ *owner) {
			n.store.mark = false
			n.operated(next)
		})
	}
	switch {
	case s.operator == idle && s.found:
		m.to(s, readNewest, 0, 0, func(n *state, _ *owner) { n.operator, n.newest = looked, s.store.epochs().newest() })
	case s.operator == looked && m.has(RaiseFirst):
		raise(halfway)
	case s.operator == halfway && m.has(RaiseFirst):
		clear(idle)
	case s.operator == looked:
		clear(halfway)
	case s.operator == halfway:
		raise(idle)
	}
}

func (s *state) operated(next uint8) {
	s.operator = next
	if next == idle {
		s.found, s.healed, s.newest = false, true, 0
	}
}
