package model

import (
	"errors"
	"fmt"
	"strings"
)

// The largest bounds that a state has room for.
const (
	MaxTenures = 5
	MaxCopies  = 2
)

// A Config says how far the search goes, and which protocol it searches.
type Config struct {
	Tenures   int  // grants of the lease, 1 to MaxTenures
	Copies    int  // publishes of each tenure, 0 to MaxCopies
	Keep      int  // copies that retention keeps; 0 means 1
	Forget    bool // owners may forget the tenant
	Late      bool // one commit of each tenure may be paused between its gate and its landing
	Corrupted int  // objects that may be corrupted: present, and not to be believed
	Lost      int  // images that may be lost, and whole copies that an origin names
	Rollbacks int  // how often the lease store may be restored from an older backup

	// What other hands may remove. Nothing is promised against that.
	RemovedOrigins, RemovedManifests int

	Without Safeguards // those that are switched off
	Variant Variant    // where the reference is followed instead of the product
}

// Validate names everything that is wrong with c.
func (c Config) Validate() error {
	var wrong []error
	within := func(name string, n, low, high int) {
		if n < low || n > high {
			wrong = append(wrong, fmt.Errorf("%s is %d to %d, not %d", name, low, high, n))
		}
	}
	within("Tenures", c.Tenures, 1, MaxTenures)
	within("Copies", c.Copies, 0, MaxCopies)
	within("Keep", c.Keep, 0, MaxTenures*MaxCopies)
	within("Corrupted", c.Corrupted, 0, 9)
	within("Lost", c.Lost, 0, 9)
	within("RemovedOrigins", c.RemovedOrigins, 0, 9)
	within("RemovedManifests", c.RemovedManifests, 0, 9)
	within("Rollbacks", c.Rollbacks, 0, 9)
	if c.Rollbacks > 0 && c.Forget {
		wrong = append(wrong, errors.New("not both Rollbacks and Forget: a floor that the lease store forgot is lost, and nobody claims otherwise"))
	}
	return errors.Join(wrong...)
}

// Safeguards is a set of what keeps the protocol safe.
type Safeguards uint32

// Each does what its comment says; switched off, it does not.
const (
	Lineage        Safeguards = 1 << iota // an open follows the origins instead of taking the newest copy by name
	Claim                                 // an open writes its origin before it serves
	ProofOfClaim                          // the lease is proved between claim and serving
	ManifestLast                          // the image is there before its manifest
	ProofBefore                           // the lease is proved between image and manifest
	ProofAfter                            // the lease is proved between manifest and report
	RetainAfter                           // retention runs only once a copy was reported as committed
	KeepClaim                             // retention spares the own origin
	KeepLineage                           // retention spares the origins that lead to the copies it keeps
	FloorCheck                            // epochs up to the forgotten floor are dead to an open
	FloorFirst                            // a forget raises the floor before it deletes
	ForgetOnlyDead                        // a forget deletes epochs up to its floor only
	CreateOnly                            // an object that exists is not overwritten
	CountEpochs                           // the lease store never grants an epoch twice
	RollbackCheck                         // an open stops at copies of its own epoch or a newer one
	RollbackMark                          // and keeps the tenant closed until an operator has raised its epoch
	ProofOfMark                           // only an owner that still holds the lease marks
	RaiseFirst                            // the operator removes the mark after the epoch was raised, not before
	LeasesOver                            // the lease store comes back only when the leases it had granted are over
	CallsOver                             // and only when what their owners had under way is over, too

	allSafeguards = iota
)

var safeguardNames = [allSafeguards]string{
	"lineage", "claim", "proof of claim", "manifest last", "proof before manifest", "proof after manifest",
	"retain after report", "keep own origin", "keep lineage", "floor check", "floor first", "forget only dead",
	"create-only", "count epochs", "rollback check", "rollback mark", "proof of mark", "raise first", "leases over", "calls over",
}

// String names the safeguards of the set.
func (s Safeguards) String() string {
	var names []string
	for i, name := range safeguardNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Variant is a set of differences between the product and the reference; each
// one that is set follows the reference.
type Variant uint8

const (
	OpenAtOnce          Variant = 1 << iota // an open lists and reads in one step, by the floor of that moment
	OnlyOriginsClaim                        // an epoch that lost its origin counts as never claimed, whatever it published
	LostCopyStartsEmpty                     // a lineage that ends at copies without a trace starts empty
	RetainByAge                             // retention and forgets delete what is old enough when they come to it, and ask nothing
	NoSweep                                 // what lands after a forget stays
	KeepTheDead                             // states differ by what owners that will do nothing more have in memory

	// Reference is all of them.
	Reference = OpenAtOnce | OnlyOriginsClaim | LostCopyStartsEmpty | RetainByAge | NoSweep | KeepTheDead
)
