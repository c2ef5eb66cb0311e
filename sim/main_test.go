package sim_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/sim"
)

// hashesOf makes this test binary print what seeds make instead of testing.
const hashesOf = "LEASEHOLD_SIM_HASHES"

func TestMain(m *testing.M) {
	if n := os.Getenv(hashesOf); n != "" {
		fmt.Print(hashes(n))
		return
	}
	goleak.VerifyTestMain(m)
}

// hashes returns a line for each of the seeds up to n.
func hashes(n string) string {
	var count uint64
	fmt.Sscan(n, &count)
	var b strings.Builder
	for seed := range count {
		r, err := sim.Run(sim.Config{Seed: seed + 1})
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "%d %s %d\n", seed+1, r.Hash, len(r.History))
	}
	return b.String()
}
