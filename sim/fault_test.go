package sim_test

import (
	"slices"
	"testing"

	"github.com/leaseholddb/leasehold/sim"
)

const someFaults = `
# a comment
12 stop replica=1 at=copies.create-manifest for=14.2s
30 crash for=3s
30 crash replica=0 at=gate.commit for=3s # the first replica
44 cut replica=2 store=leases for=1m0s
50 hang replica=1 at=leases.acquire
61 corrupt n=123456
70 backwards for=20s
`

func TestParseFaults(t *testing.T) {
	faults, err := sim.ParseFaults(someFaults)
	if err != nil || len(faults) != 7 {
		t.Fatalf("%d faults, %v", len(faults), err)
	}
	again, err := sim.ParseFaults(sim.FormatFaults(faults))
	if err != nil || !slices.Equal(again, faults) {
		t.Errorf("%v, %v", again, err)
	}
	for _, wrong := range []string{"stop", "1", "x stop replica=1 for=1s", "1 melt", "1 stop replica=-1", "1 cut replica=1", "1 hang replica=1", "1 stop why=x", "1 stop for=soon", "-1 stop"} {
		if f, err := sim.ParseFaults(wrong); err == nil {
			t.Errorf("%q is %v", wrong, f)
		}
	}
}

// What is read is written so that it reads the same.
func FuzzParseFaults(f *testing.F) {
	f.Add(someFaults)
	f.Fuzz(func(t *testing.T, text string) {
		faults, err := sim.ParseFaults(text)
		if err != nil {
			return
		}
		again, err := sim.ParseFaults(sim.FormatFaults(faults))
		if err != nil || !slices.Equal(again, faults) {
			t.Fatalf("%q reads as %v, and then as %v, %v", text, faults, again, err)
		}
	})
}
