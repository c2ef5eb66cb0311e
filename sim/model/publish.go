package model

// publish is a copy on its way from the proof before it to the report. A write
// that was paused may land before the image is taken.
func (m *machine) publish(s *state, t tenure) {
	o := s.owner(t)
	switch o.at {
	case atUpload:
		m.landLate(s, t)
		m.upload(s, t, o.seq+1, atProveUpload)
	case atProveUpload:
		m.prove(s, proveImage, t, ProofBefore, atCommit)
	case atCommit:
		m.writeManifest(s, t)
	case atUploadLate:
		m.landLate(s, t)
		m.upload(s, t, o.seq, atProveCommit)
	case atProveCommit:
		m.report(s, t)
	}
}

func (m *machine) upload(s *state, t tenure, seq uint8, next at) {
	r := refOf(s.owner(t).epoch, seq)
	if s.store.images.has(r) && m.has(CreateOnly) {
		m.to(s, uploadImage, t, uint8(r), func(_ *state, o *owner) { o.at = atDead })
		return
	}
	m.to(s, uploadImage, t, uint8(r), func(n *state, o *owner) {
		n.store.images = n.store.images.with(r)
		n.bad.images = n.bad.images.without(r)
		n.imageOf[r-1] = o.content
		o.at, o.seq = next, seq
	})
}

func (m *machine) writeManifest(s *state, t tenure) {
	o := s.owner(t)
	seq, next := o.seq, atProveCommit
	if !m.has(ManifestLast) {
		seq, next = o.seq+1, atUploadLate
	}
	r := refOf(o.epoch, seq)
	if s.store.manifests.has(r) && m.has(CreateOnly) {
		m.to(s, writeManifest, t, uint8(r), func(_ *state, o *owner) { o.at = atDead })
		return
	}
	m.to(s, writeManifest, t, uint8(r), func(n *state, o *owner) {
		n.store.manifests = n.store.manifests.with(r)
		n.bad.manifests = n.bad.manifests.without(r)
		o.at, o.seq = next, seq
	})
}

// report is the proof after the manifest: only now does the copy count.
func (m *machine) report(s *state, t tenure) {
	o := s.owner(t)
	r := refOf(o.epoch, o.seq)
	m.to(s, proveManifest, t, uint8(r), func(n *state, o *owner) {
		if !s.holds(t) && m.has(ProofAfter) {
			o.at = atDead
			if !m.has(RetainAfter) {
				o.at, o.last = atRetain, o.seq
			}
			return
		}
		if m.follows(RetainByAge) && !s.store.images.has(r) {
			o.at = atDead
			return
		}
		m.verdict = m.acknowledging(s, t)
		n.reported = n.reported.with(r)
		n.reportedOf[r-1] = s.imageOf[r-1]
		o.at, o.last = atRetain, o.seq
	})
}
