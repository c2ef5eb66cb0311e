package model

// settle makes states equal that differ only in what nobody will ever look at. It
// changes no verdict, and leaves a small part of the states to visit.
func (m *machine) settle(s *state) {
	if m.follows(KeepTheDead) {
		return
	}
	for t := tenure(1); t <= s.granted; t++ {
		if o := s.owner(t); o.at == atDead || o.at == atStuck || !s.holds(t) {
			m.supersede(o)
		}
	}
}

// supersede forgets what an owner without a lease cannot use any more. It never
// holds one again, so each proof that it is still asked for ends it.
func (m *machine) supersede(o *owner) {
	ends := false
	switch o.at {
	case atServe:
		ends = o.floor == 0 || m.follows(NoSweep)
		o.late = notBegun // what lands now will be in no image
	case atAsk:
		ends = true
	case atRolledBack:
		ends = m.has(ProofOfMark)
	case atProveClaim:
		ends = m.has(ProofOfClaim)
	case atProveUpload:
		ends = m.has(ProofBefore)
	case atProveCommit:
		ends = m.has(ProofAfter) && m.has(RetainAfter)
	case atUpload, atUploadLate:
		return // its image holds what its ledger holds
	}
	switch {
	case o.at == atStuck:
		*o = owner{at: atStuck, epoch: o.epoch}
	case o.at == atDead || ends:
		*o = owner{at: atDead, epoch: o.epoch}
	case m.has(ProofOfClaim):
		o.content, o.report, o.started, o.wrote = 0, 0, 0, false
	}
}

// settled reports that nothing can go wrong any more: the last tenure serves, and
// nobody else believes that he does. What the last tenure does then is read by
// nobody.
func (m *machine) settled(s *state) bool {
	if m.follows(KeepTheDead) || int(s.granted) < m.Tenures {
		return false
	}
	last := s.owner(s.granted).at
	over := last == atServe || last == atDead || last == atStuck
	return over && s.forgotten == 0 && m.has(ProofOfClaim) && m.has(ProofAfter)
}
