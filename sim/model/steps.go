package model

// A kind names a step of the protocol; docs/protocol.md uses the same names.
type kind uint8

const (
	acquire kind = iota
	list
	readManifest
	readImage
	readOrigin
	ask
	proveMark
	mark
	claim
	proveClaim
	write
	passGate
	landLate
	prove
	uploadImage
	proveImage
	writeManifest
	proveManifest
	retain
	retained
	raiseFloor
	forget
	forgotten
	sweep
	corrupt
	lose
	remove
	rollBack
	forgetLease
	readNewest
	raiseEpoch
	clearMark

	kinds
)

var kindNames = [kinds]string{
	"acquire", "list", "read manifest", "read image", "read origin", "ask", "prove mark", "mark", "claim", "prove claim",
	"write", "pass gate", "land late", "prove", "upload image", "prove image", "write manifest", "prove manifest",
	"retain", "retained", "raise floor", "forget", "forgotten", "sweep",
	"corrupt", "lose", "remove", "roll back", "forget lease", "read newest", "raise epoch", "clear mark",
}

// StepNames returns the names of all steps, in the order in which docs/protocol.md
// introduces them.
func StepNames() []string { return append([]string(nil), kindNames[:]...) }

// A move is one step of one tenure, 0 being what is around them. about is the copy
// or epoch that it concerns.
type move struct {
	kind   kind
	tenure tenure
	about  uint8
}

// Where the object is what a step is about, these are added to the copy or epoch.
const (
	manifestAt = 0
	imageAt    = 50
	copyAt     = 100
	originAt   = 150
)

// A machine applies the rules of a configuration.
type machine struct {
	Config
	emit    func(move, *state) // told of each step that is possible, and where it leads
	verdict string             // what is wrong with the step that is emitted
}

func (m *machine) has(safeguard Safeguards) bool { return m.Without&safeguard == 0 }
func (m *machine) follows(v Variant) bool        { return m.Variant&v != 0 }

// next emits every step that is possible in s.
func (m *machine) next(s *state) {
	if m.settled(s) {
		return
	}
	m.grant(s)
	for t := tenure(1); t <= s.granted; t++ {
		m.own(s, t)
	}
	m.damage(s)
	m.rollbacks(s)
}

// to emits the step that change makes of s.
func (m *machine) to(s *state, k kind, t tenure, about uint8, change func(n *state, o *owner)) {
	n := *s
	m.verdict = ""
	o := &owner{}
	if t > 0 {
		o = n.owner(t)
	}
	change(&n, o)
	m.settle(&n)
	m.emit(move{k, t, about}, &n)
}

// prove goes on at next if the lease is held, or if nobody asks.
func (m *machine) prove(s *state, k kind, t tenure, asked Safeguards, next at) {
	m.to(s, k, t, 0, func(_ *state, o *owner) {
		o.at = atDead
		if s.holds(t) || !m.has(asked) {
			o.at = next
		}
	})
}

// grant: the lease of the holder runs out or is released, and another tenure gets it.
func (m *machine) grant(s *state) {
	if int(s.granted) == m.Tenures {
		return
	}
	t := s.granted + 1
	m.to(s, acquire, t, 0, func(n *state, o *owner) {
		n.granted, n.holder = t, t
		if m.has(CountEpochs) || n.counter == 0 {
			n.counter++
		}
		*o = owner{at: atList, epoch: n.counter, floor: n.floor, report: n.reported, started: n.began}
		if m.follows(OpenAtOnce) {
			o.floor = 0 // it has no use for it
		}
	})
}

func (m *machine) own(s *state, t tenure) {
	o := s.owner(t)
	switch o.at {
	case atList, atManifest, atImage, atOrigin, atAsk, atRolledBack, atMark, atClaim, atProveClaim:
		m.open(s, t)
	case atServe:
		m.serve(s, t)
	case atUpload, atUploadLate, atProveUpload, atCommit, atProveCommit:
		m.publish(s, t)
	case atRetain:
		m.retention(s, t)
	case atForget, atRaiseLate:
		m.forgetting(s, t)
	}
	if !m.follows(NoSweep) && o.at == atServe && o.floor > 0 {
		m.deleteEach(s, sweep, t, upTo(s.store, o.floor))
	}
}

func (m *machine) serve(s *state, t tenure) {
	o := s.owner(t)
	if s.holds(t) && !o.wrote {
		m.to(s, write, t, 0, func(_ *state, o *owner) {
			o.content |= acknowledged(t)
			o.wrote = true
			m.verdict = m.acknowledging(s, t)
		})
	}
	if m.Late && s.holds(t) && o.late == notBegun {
		m.to(s, passGate, t, 0, func(_ *state, o *owner) { o.late = pastGate })
	}
	m.landLate(s, t)
	if int(o.seq) < m.Copies && s.holds(t) {
		next := atUpload
		if !m.has(ManifestLast) {
			next = atProveUpload
		}
		m.to(s, prove, t, 0, func(_ *state, o *owner) { o.at = next })
	}
	if m.Forget && s.holds(t) && o.late != pastGate && int(t) < m.Tenures {
		m.to(s, raiseFloor, t, 0, func(n *state, o *owner) {
			o.at = atForget
			if m.has(FloorFirst) {
				n.floor = o.epoch
			}
		})
	}
}

// landLate: the commit that was paused behind its gate lands, whoever holds the lease.
func (m *machine) landLate(s *state, t tenure) {
	if s.owner(t).late != pastGate {
		return
	}
	m.to(s, landLate, t, 0, func(n *state, o *owner) {
		o.content |= paused(t)
		o.late = landed
		if !s.holds(t) {
			n.tainted |= paused(t)
		}
	})
}
