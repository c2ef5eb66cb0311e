//go:build simmutation

package sim_test

import (
	"flag"
	"testing"

	"github.com/leaseholddb/leasehold/internal/safeguards"
	"github.com/leaseholddb/leasehold/sim"
)

var only = flag.String("safeguard", "", "take out only this one")

// within is how many seeds may pass before a safeguard that is taken out is missed.
const within = 2000

// SI-4: with any one safeguard taken out, a guarantee is seen to break.
func TestEverySafeguardIsMissed(t *testing.T) {
	defer safeguards.Switch(safeguards.None)
	t.Log("| safeguard | seeds | what broke |")
	t.Log("|---|---|---|")
	for _, s := range safeguards.All() {
		if *only != "" && string(s) != *only {
			continue
		}
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
