package model

// open is the way from the grant to serving.
func (m *machine) open(s *state, t tenure) {
	o := s.owner(t)
	switch o.at {
	case atList:
		m.list(s, t)
	case atManifest:
		m.to(s, readManifest, t, uint8(o.from), func(_ *state, o *owner) {
			if s.store.manifests.has(o.from) && !s.bad.manifests.has(o.from) {
				o.at = atImage
			} else {
				o.nextCopy(o.from.epoch(), o.from.seq())
			}
		})
	case atImage:
		m.to(s, readImage, t, uint8(o.from), func(_ *state, o *owner) {
			if s.store.images.has(o.from) && !s.bad.images.has(o.from) {
				m.restored(o, o.from, s.imageOf[o.from-1])
			} else {
				o.nextCopy(o.from.epoch(), o.from.seq())
			}
		})
	case atOrigin:
		e := o.from.epoch()
		m.to(s, readOrigin, t, e, func(_ *state, o *owner) {
			switch from := s.originOf[e-1]; {
			case !s.store.origins.has(e) || s.bad.origins.has(e):
				o.at = atAsk // and be refused: the lineage is broken
			case from == 0:
				m.end(o)
			default:
				m.follow(o, from.epoch(), from.seq())
			}
		})
	case atAsk:
		m.to(s, ask, t, 0, func(n *state, o *owner) { m.refuse(n, t, o) })
	case atRolledBack:
		next := atMark
		if !m.has(RollbackMark) {
			next = atAsk
		}
		m.prove(s, proveMark, t, ProofOfMark, next)
	case atMark:
		m.to(s, mark, t, 0, func(n *state, o *owner) {
			n.store.mark, n.found = true, true
			m.refuse(n, t, o)
		})
	case atClaim:
		m.claim(s, t)
	case atProveClaim:
		m.to(s, proveClaim, t, 0, func(n *state, o *owner) {
			if !s.holds(t) && m.has(ProofOfClaim) {
				o.at = atDead
				return
			}
			o.at = atServe
			n.began = n.began.with(t)
			n.beganWith[t-1] = o.content
			m.verdict = m.beginning(n, t)
			if !m.follows(KeepTheDead) {
				o.report, o.started = 0, 0 // only asked for here
			}
		})
	}
}

// refuse ends an open that cannot go on. An owner that was superseded meanwhile
// says so instead, for what it saw says nothing about the store.
func (m *machine) refuse(s *state, t tenure, o *owner) {
	o.at = atDead
	if s.holds(t) {
		o.at = atStuck
		m.verdict = m.refusal(s, t)
	}
	if s.holder == t {
		s.holder = 0
	}
}

func (m *machine) list(s *state, t tenure) {
	newest := s.store.origins.newest()
	if !m.follows(OnlyOriginsClaim) {
		newest = (s.store.origins | s.store.manifests.epochs()).newest()
	}
	m.to(s, list, t, newest, func(n *state, o *owner) {
		o.warned = s.found
		switch {
		case m.follows(OpenAtOnce):
			m.openAtOnce(n, t, o)
		case m.has(RollbackCheck) && (s.store.mark || s.store.epochs().newest() >= o.epoch):
			o.at = atRolledBack
			if !m.has(RollbackMark) {
				n.found = s.found || s.holds(t)
			}
		case !m.has(Lineage):
			m.newestByName(n, o)
		default:
			o.listed = s.store.manifests
			m.follow(o, newest, 0)
		}
	})
}

// follow goes to an epoch's copies, from limit back: to limit even if it was not
// listed, for that it is gone has to be known. 0 is no limit.
func (m *machine) follow(o *owner, e epoch, limit uint8) {
	if e <= o.floor && m.has(FloorCheck) || e == 0 {
		m.end(o)
		return
	}
	if limit == 0 {
		limit = MaxCopies
	} else if !m.follows(LostCopyStartsEmpty) {
		o.offer(refOf(e, limit))
		return
	}
	o.nextCopy(e, limit+1)
}

// nextCopy goes to the newest listed copy of e below seq, or to e's origin.
func (o *owner) nextCopy(e epoch, seq uint8) {
	if seq = o.listed.below(e, seq); seq > 0 {
		o.offer(refOf(e, seq))
		return
	}
	o.at, o.from = atOrigin, refOf(e, 1)
}

func (o *owner) offer(r ref) { o.at, o.from, o.copies = atManifest, r, true }

// end is the end of the lineage: there never was a copy, or none is left.
func (m *machine) end(o *owner) {
	if o.copies {
		o.at = atAsk
		return
	}
	m.restored(o, 0, 0)
}

func (m *machine) restored(o *owner, from ref, content writes) {
	o.at, o.from, o.content = atClaim, from, content
	o.listed, o.copies = 0, false
	if !m.has(Claim) {
		o.at = atProveClaim
	}
}

func (m *machine) claim(s *state, t tenure) {
	o := s.owner(t)
	if s.store.origins.has(o.epoch) && m.has(CreateOnly) {
		// Somebody else's: a copy conflict.
		m.to(s, claim, t, 0, func(n *state, o *owner) { m.refuse(n, t, o) })
		return
	}
	m.to(s, claim, t, uint8(o.from), func(n *state, o *owner) {
		n.store.origins = n.store.origins.with(o.epoch)
		n.bad.origins = n.bad.origins.without(o.epoch)
		n.originOf[o.epoch-1] = o.from
		o.at = atProveClaim
	})
}

// newestByName is what an open without a lineage does.
func (m *machine) newestByName(s *state, o *owner) {
	floor := m.floorOf(s, o)
	for r := maxRef; r > 0; r-- {
		if e := r.epoch(); s.intact(r) && e < o.epoch && (e > floor || !m.has(FloorCheck)) {
			m.restored(o, r, s.imageOf[r-1])
			return
		}
	}
	m.restored(o, 0, 0)
}
