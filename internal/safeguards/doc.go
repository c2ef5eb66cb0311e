// Package safeguards lets the simulation take out one protection of the product at a
// time, to see whether its checks notice. In every build without the tag simmutation
// [Off] is a constant, so that the compiler removes the question with its branch: what
// users run has no switch.
package safeguards

// A Safeguard is one protection whose absence must be noticed.
type Safeguard string

// The safeguards, in the order in which a write, its copies and its tenant's end meet
// them.
const (
	None              Safeguard = ""
	Margin            Safeguard = "margin"              // the fence is before the end of the TTL by as much as clocks may drift
	GateBefore        Safeguard = "gate-before"         // no work begins, and nothing is read, behind the fence
	CommitHook        Safeguard = "commit-hook"         // no commit begins behind the fence
	GateAfter         Safeguard = "gate-after"          // nothing is acknowledged behind the fence
	Lineage           Safeguard = "lineage"             // a successor follows what each owner started from
	CreateOnly        Safeguard = "create-only"         // no object is overwritten
	ManifestLast      Safeguard = "manifest-last"       // a manifest means that its image is there
	FloorCheck        Safeguard = "floor-check"         // copies at or below the forgotten floor are dead
	Sweep             Safeguard = "sweep"               // what landed after a forget is deleted by the next owner
	ReleaseAfterFlush Safeguard = "release-after-flush" // a handoff whose final copy failed keeps the lease
	StopBeforeRelease Safeguard = "stop-before-release" // the gate is shut before the store is told
	KeepaliveAfterAsk Safeguard = "keepalive-after-ask" // a renewal counts from a keepalive sent after it was asked for
	NonceRecognition  Safeguard = "nonce-recognition"   // an acquisition whose answer was lost is recognised, or made void
	RollbackDetection Safeguard = "rollback-detection"  // copies that are newer than the grant close the tenant
)

// All returns every safeguard in that order.
func All() []Safeguard {
	return []Safeguard{
		Margin, GateBefore, CommitHook, GateAfter, Lineage, CreateOnly, ManifestLast, FloorCheck, Sweep,
		ReleaseAfterFlush, StopBeforeRelease, KeepaliveAfterAsk, NonceRecognition, RollbackDetection,
	}
}
