package model

import (
	"strings"
	"testing"
)

// Each safeguard, switched off, is refuted.
var refutations = []struct {
	without Safeguards
	config  Config
	want    string // the violation, in part
}{
	{Lineage, Config{Tenures: 3, Copies: 1}, "tenure 3 forks"},
	{Claim, Config{Tenures: 3, Copies: 1}, "tenure 3 forks"},
	{ProofOfClaim, Config{Tenures: 2, Copies: 1}, "tenure 1 begins to serve although tenure 2 serves"},
	{ManifestLast, Config{Tenures: 2, Copies: 1}, "is refused although nothing is damaged"},
	{ProofBefore, Config{Tenures: 2, Copies: 1, Late: true}, "landed after its owner was superseded"},
	{ProofAfter, Config{Tenures: 2, Copies: 1}, "tenure 1 acknowledges although tenure 2 serves"},
	{RetainAfter, Config{Tenures: 3, Copies: 1}, "is refused although nothing is damaged"},
	{KeepClaim, Config{Tenures: 3, Copies: 1, Keep: 2, Corrupted: 1}, "is refused although copy e1/snap-1 is intact"},
	{KeepLineage, Config{Tenures: 4, Copies: 1, Keep: 3, Lost: 2}, "is refused although copy e1/snap-1 is intact"},
	{FloorCheck, Config{Tenures: 2, Copies: 1, Forget: true}, "is refused although nothing is damaged"},
	{FloorFirst, Config{Tenures: 2, Copies: 1, Forget: true}, "is refused although nothing is damaged"},
	{ForgetOnlyDead, Config{Tenures: 3, Copies: 1, Forget: true}, "is refused although nothing is damaged"},
	{CreateOnly | CallsOver, Config{Tenures: 4, Copies: 1, Rollbacks: 1}, "tenure 4 forks"},
	{CountEpochs, Config{Tenures: 2, Copies: 1}, "is refused although nothing is damaged"},
	{RollbackCheck, Config{Tenures: 5, Copies: 1, Rollbacks: 1}, "starts empty although copy e1/snap-1 was reported"},
	{RollbackMark, Config{Tenures: 3, Copies: 1, Rollbacks: 1}, "it was known, when it listed"},
	{ProofOfMark, Config{Tenures: 3, Copies: 1}, "is refused although nothing is damaged and the lease store forgot nothing"},
	{RaiseFirst, Config{Tenures: 3, Copies: 1, Rollbacks: 1}, "it was known, when it listed"},
	{LeasesOver, Config{Tenures: 3, Copies: 1, Rollbacks: 1}, "although tenure 3 serves"},
	{CallsOver, Config{Tenures: 5, Copies: 1, Rollbacks: 1}, "starts empty although copy e1/snap-1 was reported"},
}

func TestEachSafeguardIsNeeded(t *testing.T) {
	var shown Safeguards
	for _, c := range refutations {
		shown |= c.without
		t.Run(c.without.String(), func(t *testing.T) {
			t.Parallel()
			c.config.Without = c.without
			if r := searched(t, c.config); !strings.Contains(r.Violation, c.want) {
				t.Errorf("violation %q, want one with %q", r.Violation, c.want)
			}
		})
	}
	if missing := Safeguards(1<<allSafeguards-1) &^ shown; missing != 0 {
		t.Errorf("nothing shows why these are needed: %s", missing)
	}
}

// CreateOnly is shown together with CallsOver; within those bounds CallsOver alone
// is not what goes wrong.
func TestCreateOnlyIsTheReason(t *testing.T) {
	t.Parallel()
	if r := searched(t, Config{Tenures: 4, Copies: 1, Rollbacks: 1, Without: CallsOver}); r.Violation != "" {
		t.Error("the protocol does not hold")
	}
}

// A copy that is forgotten by the lease store comes back only over the floor.
func TestForgottenStaysForgotten(t *testing.T) {
	t.Parallel()
	c := Config{Tenures: 3, Copies: 1, Forget: true, Corrupted: 1, Without: FloorCheck}
	if r := searched(t, c); r.Violation == "" {
		t.Error("without the floor nothing goes wrong")
	}
}

// What docs/guarantees.md leaves to whoever deletes objects: the protocol does not
// survive it, and this is how.
func TestRemovedObjectsAreLost(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{Tenures: 2, Copies: 1, RemovedManifests: 1},
		{Tenures: 3, Copies: 1, RemovedOrigins: 1},
	} {
		if r := searched(t, c); r.Violation == "" {
			t.Errorf("%+v holds after all: say so in docs/guarantees.md", c)
		}
	}
}
