package model

// Numbers start at 1; 0 means none.
type (
	tenure = uint8 // in the order of the grants
	epoch  = uint8 // as the lease store counted it
)

// writes is a set: bit 2(t-1) is the acknowledged write of tenure t, the bit above
// it its commit that was paused.
type writes uint16

func acknowledged(t tenure) writes { return 1 << (2 * (t - 1)) }
func paused(t tenure) writes       { return 2 << (2 * (t - 1)) }
func before(t tenure) writes       { return 1<<(2*(t-1)) - 1 }

// A ref is a copy: 1 is the first of epoch 1.
type ref uint8

func refOf(e epoch, seq uint8) ref { return ref((e-1)*MaxCopies + seq) }
func (r ref) epoch() epoch         { return epoch(r-1)/MaxCopies + 1 }
func (r ref) seq() uint8           { return uint8(r-1)%MaxCopies + 1 }

const maxRef = ref(MaxTenures * MaxCopies)

// refs and epochs are sets.
type (
	refs   uint16
	epochs uint8
)

func (s refs) has(r ref) bool     { return r > 0 && s&(1<<(r-1)) != 0 }
func (s refs) with(r ref) refs    { return s | 1<<(r-1) }
func (s refs) without(r ref) refs { return s &^ (1 << (r - 1)) }

func (s epochs) has(e epoch) bool       { return e > 0 && s&(1<<(e-1)) != 0 }
func (s epochs) with(e epoch) epochs    { return s | 1<<(e-1) }
func (s epochs) without(e epoch) epochs { return s &^ (1 << (e - 1)) }

func (s epochs) newest() epoch {
	for e := epoch(MaxTenures); e > 0; e-- {
		if s.has(e) {
			return e
		}
	}
	return 0
}

// of returns the copies of an epoch that are in s, and epochs those it has any of.
func (s refs) of(e epoch) refs { return s & ((1<<MaxCopies - 1) << ((e - 1) * MaxCopies)) }

func (s refs) epochs() epochs {
	var es epochs
	for e := epoch(1); e <= MaxTenures; e++ {
		if s.of(e) != 0 {
			es = es.with(e)
		}
	}
	return es
}

// below returns the highest seq of s's copies of e that is below seq, 0 if there is
// none.
func (s refs) below(e epoch, seq uint8) uint8 {
	for seq--; seq > 0; seq-- {
		if s.has(refOf(e, seq)) {
			return seq
		}
	}
	return 0
}

// objects is what the copy store has of the tenant, or which of it is corrupted.
type objects struct {
	manifests, images refs
	origins           epochs
	mark              bool // rolled-back.json
}

func (o objects) epochs() epochs { return o.origins | o.manifests.epochs() | o.images.epochs() }

// owner is one tenure as its replica sees it.
type owner struct {
	content writes // of its ledger
	listed  refs   // while opening: the manifests that were listed
	report  refs   // copies that were reported as committed before its grant
	started epochs // tenures that began to serve before its grant
	at      at
	epoch   epoch
	floor   epoch // forgotten floor at the grant
	from    ref   // the copy that it started from; while opening, the one being read
	seq     uint8 // of its newest attempt
	last    uint8 // of its newest committed copy
	late    late
	wrote   bool
	copies  bool // while opening: a copy was offered
	warned  bool // when it listed, a rollback was known that nobody had dealt with
}

// state is everything. It has no pointers: states are equal if their bytes are.
type state struct {
	owners     [MaxTenures]owner
	imageOf    [maxRef]writes // what the image holds
	reportedOf [maxRef]writes // what the copy held when it was reported
	beganWith  [MaxTenures]writes
	originOf   [MaxTenures]ref // what the origin names
	reported   refs
	tainted    writes // commits that landed after their tenure was superseded
	began      epochs // tenures that served
	store      objects
	bad        objects // corrupted

	granted   tenure // how many there were
	holder    tenure // whose lease the lease store knows
	forgotten tenure // whose lease it forgot, and who does not know yet
	counter   epoch  // granted last
	floor     epoch

	corrupted, lost, noOrigin, noManifest, rollbacks uint8 // how many there were
	operator                                         uint8 // how far a raise-epoch is
	newest                                           epoch // that the operator saw
	found                                            bool  // a rollback was found, and no operator has dealt with it
	healed                                           bool  // an operator has dealt with one
}

func (s *state) owner(t tenure) *owner { return &s.owners[t-1] }

// holds is a proof of the lease, by the clock.
func (s *state) holds(t tenure) bool { return t == s.holder || t == s.forgotten }

func (s *state) damaged() bool { return s.corrupted+s.lost+s.noOrigin+s.noManifest > 0 }

func (s *state) intact(r ref) bool {
	return s.store.manifests.has(r) && s.store.images.has(r) && !s.bad.manifests.has(r) && !s.bad.images.has(r)
}

// late is how far the paused commit of a tenure is.
type late uint8

const (
	notBegun late = iota
	pastGate
	landed
)

// at is the point of the protocol that an owner has come to.
type at uint8

const (
	atList at = iota + 1
	atManifest
	atImage
	atOrigin
	atAsk
	atRolledBack
	atMark
	atClaim
	atProveClaim
	atServe
	atUpload
	atProveUpload
	atCommit
	atUploadLate // the image after its manifest, which the product never does
	atProveCommit
	atRetain
	atForget
	atRaiseLate // the floor after the deletes, which the product never does
	atStuck     // was refused while it held the lease
	atDead      // does nothing any more
)
