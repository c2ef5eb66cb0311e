//go:build simmutation

package sim_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/internal/safeguards"
	"github.com/leaseholddb/leasehold/sim"
)

var only = flag.String("safeguard", "", "take out only these, with commas between them")

// within is how many seeds may pass before a safeguard that is taken out is missed.
const within = 2000

// SI-4: with any one safeguard taken out, a guarantee is seen to break.
func TestEverySafeguardIsMissed(t *testing.T) {
	defer safeguards.Switch(safeguards.None)
	t.Log("| safeguard | seeds | what broke |")
	t.Log("|---|---|---|")
	for _, s := range chosen(t) {
		safeguards.Switch(s)
		_, failed, err := sim.Campaign{Config: sim.Config{Seed: 1}, Seeds: within}.Run(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case failed == nil:
			t.Errorf("without %s, %d histories break nothing", s, within)
		default:
			t.Logf("| %s | %d | %s |", s, failed.Config.Seed, failed.Violations[0].Invariant)
		}
	}
}

// chosen are the safeguards to take out.
func chosen(t *testing.T) []safeguards.Safeguard {
	if *only == "" {
		return safeguards.All()
	}
	var some []safeguards.Safeguard
	for name := range strings.SplitSeq(*only, ",") {
		s := safeguards.Safeguard(name)
		if !slices.Contains(safeguards.All(), s) {
			t.Fatalf("there is no safeguard %q", name)
		}
		some = append(some, s)
	}
	return some
}

// A failing history is made again by its faults as text, and none of those that Shrink leaves
// can be left out.
func TestShrink(t *testing.T) {
	defer safeguards.Switch(safeguards.None)
	safeguards.Switch(safeguards.GateAfter)
	_, failed, err := sim.Campaign{Config: sim.Config{Seed: 1}, Seeds: within}.Run(t.Context())
	if err != nil || failed == nil {
		t.Fatal(failed, err)
	}
	small, err := sim.Shrink(*failed)
	if err != nil {
		t.Fatal(err)
	}
	if len(small.Config.Faults) > len(failed.Config.Faults) {
		t.Errorf("%d faults became %d", len(failed.Config.Faults), len(small.Config.Faults))
	}
	run := func(faults []sim.Fault) bool {
		r, err := sim.Run(sim.Config{Seed: small.Config.Seed, Faults: faults})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Violations) > 0
	}
	faults, err := sim.ParseFaults(sim.FormatFaults(small.Config.Faults))
	if err != nil || !run(faults) {
		t.Errorf("what was printed does not fail again: %v", err)
	}
	for i := range faults {
		if run(slices.Delete(slices.Clone(faults), i, i+1)) {
			t.Errorf("%s could be left out", faults[i])
		}
	}
}
