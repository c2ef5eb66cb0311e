package model

// retention deletes what the newest committed copy of the tenure made needless. It
// needs no proof of the lease.
func (m *machine) retention(s *state, t tenure) {
	o := s.owner(t)
	doomed := m.superseded(s, o)
	if !m.has(KeepClaim) {
		doomed.origins |= s.store.origins & epochs(0).with(o.epoch)
	}
	m.deleteEach(s, retain, t, doomed)
	m.to(s, retained, t, 0, func(_ *state, o *owner) { o.at = atServe })
}

// superseded returns the objects that lead to none of the copies to keep.
func (m *machine) superseded(s *state, o *owner) objects {
	last := refOf(o.epoch, o.last)
	if m.follows(RetainByAge) {
		return older(s.store, last)
	}
	if !s.store.origins.has(o.epoch) && m.has(KeepClaim) {
		return objects{} // a conflict: somebody removed the own origin
	}
	kept, origins, whole := m.lineage(s, o, last)
	doomed := older(s.store, last)
	doomed.manifests &^= kept
	doomed.images &^= kept
	if m.has(KeepLineage) {
		doomed.origins &^= origins
	}
	if whole > 0 {
		broken := upTo(s.store, whole)
		doomed.origins &^= broken.origins
		doomed.manifests &^= broken.manifests
		doomed.images &^= broken.images
	}
	return doomed
}

// lineage walks back from last to the oldest copy to keep. It returns the copies to
// keep, the origins that lead to them, and the epoch where the lineage is broken, 0
// if it is whole.
func (m *machine) lineage(s *state, o *owner, last ref) (kept refs, origins epochs, broken epoch) {
	keep, n := max(m.Keep, 1), 0
	e, limit := last.epoch(), last.seq()
	for e > o.floor && e > 0 {
		for seq := limit; seq > 0; seq-- {
			if r := refOf(e, seq); s.store.manifests.has(r) && s.store.images.has(r) {
				kept = kept.with(r)
				if n++; n == keep {
					return kept, origins, 0
				}
			}
		}
		if e != o.epoch && (!s.store.origins.has(e) || s.bad.origins.has(e)) {
			return kept, origins, e
		}
		origins = origins.with(e)
		from := s.originOf[e-1]
		if from == 0 {
			break
		}
		e, limit = from.epoch(), from.seq()
	}
	return kept, origins, 0
}

// forgetting deletes everything up to the floor, which was raised before.
func (m *machine) forgetting(s *state, t tenure) {
	o := s.owner(t)
	if o.at == atRaiseLate {
		m.to(s, raiseFloor, t, 0, func(n *state, o *owner) {
			o.at = atDead
			if s.holder == t {
				n.floor = o.epoch
			}
		})
		return
	}
	dead := upTo(s.store, o.epoch)
	if m.follows(RetainByAge) {
		dead = upTo(s.store, s.floor) // the reference reads it again each time
	}
	if !m.has(ForgetOnlyDead) {
		dead = s.store
		dead.mark = false
	}
	m.deleteEach(s, forget, t, dead)
	if dead == (objects{}) {
		next := atDead
		if !m.has(FloorFirst) {
			next = atRaiseLate
		}
		m.to(s, forgotten, t, 0, func(_ *state, o *owner) { o.at = next })
	}
}

// upTo returns the objects of epochs up to e.
func upTo(o objects, e epoch) objects {
	return objects{origins: o.origins & (1<<e - 1), manifests: o.manifests & (1<<(e*MaxCopies) - 1), images: o.images & (1<<(e*MaxCopies) - 1)}
}

// older returns the objects of epochs before r's, and the copies of r's epoch before
// r.
func older(o objects, r ref) objects {
	all := upTo(o, r.epoch()-1)
	all.manifests = o.manifests & (1<<(r-1) - 1)
	all.images = o.images & (1<<(r-1) - 1)
	return all
}

// deleteEach emits the deletion of each of some objects.
func (m *machine) deleteEach(s *state, k kind, t tenure, doomed objects) {
	for r := ref(1); r <= maxRef; r++ {
		if doomed.manifests.has(r) {
			m.to(s, k, t, manifestAt+uint8(r), func(n *state, _ *owner) { n.deleteManifest(r) })
		}
		if doomed.images.has(r) {
			m.to(s, k, t, imageAt+uint8(r), func(n *state, _ *owner) { n.deleteImage(r) })
		}
	}
	for e := epoch(1); e <= MaxTenures; e++ {
		if doomed.origins.has(e) {
			m.to(s, k, t, originAt+e, func(n *state, _ *owner) { n.deleteOrigin(e) })
		}
	}
}

func (s *state) deleteManifest(r ref) {
	s.store.manifests = s.store.manifests.without(r)
	s.bad.manifests = s.bad.manifests.without(r)
}

func (s *state) deleteImage(r ref) {
	s.store.images = s.store.images.without(r)
	s.bad.images = s.bad.images.without(r)
	s.imageOf[r-1] = 0
}

func (s *state) deleteOrigin(e epoch) {
	s.store.origins = s.store.origins.without(e)
	s.bad.origins = s.bad.origins.without(e)
	s.originOf[e-1] = 0
}
