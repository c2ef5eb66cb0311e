package sim_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim"
)

// SI-3: no invariant breaks, in histories that have something to break it.
func TestShortRound(t *testing.T) {
	stats, failed, err := sim.Campaign{Config: sim.Config{Seed: 100_000}, Seeds: round}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		for _, v := range failed.Violations {
			t.Error(v)
		}
		t.Fatalf("to make it happen again:\n%s", failed.Config.Command())
	}
	t.Logf("%+v", stats)
	for what, n := range map[string]int{
		"histories": stats.Histories - round + 1, "faults": stats.Faults, "takeovers": stats.Takeovers,
		"handoffs": stats.Handoffs, "moves": stats.Moves, "waits": stats.Waits, "writes": stats.Writes, "reads": stats.Reads, "simulated hours": int(stats.Simulated.Hours()),
	} {
		if n < 1 {
			t.Errorf("too few %s: %+v", what, stats)
		}
	}
}

// SI-1: the same seeds make the same histories in other processes, with another number of
// processors, at the same time.
func TestSameSeedSameHistory(t *testing.T) {
	const n = "8"
	procs := []string{"1", "2", "8"}
	outputs := make([]string, len(procs))
	var all sync.WaitGroup
	for i, p := range procs {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), hashesOf+"="+n, "GOMAXPROCS="+p)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			outputs[i] = string(out)
		})
	}
	all.Wait()
	if strings.Count(outputs[0], "\n") != 8 {
		t.Fatalf("no hashes: %s", outputs[0])
	}
	for i, out := range outputs {
		if out != outputs[0] {
			t.Errorf("with %s processors:\n%s\nwith %s:\n%s", procs[0], outputs[0], procs[i], out)
		}
	}
}

// What a history says of its faults makes it again.
func TestFaultsReplay(t *testing.T) {
	first, err := sim.Run(sim.Config{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Config.Faults) == 0 {
		t.Fatal("the seed has no faults")
	}
	faults, err := sim.ParseFaults(sim.FormatFaults(first.Config.Faults))
	if err != nil {
		t.Fatal(err)
	}
	again, err := sim.Run(sim.Config{Seed: 7, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash != first.Hash {
		t.Error("the same faults from a list make another history")
	}
	if again, err = sim.Run(first.Config); err != nil || again.Hash != first.Hash {
		t.Errorf("the configuration of a result makes another history: %v", err)
	}
	without, err := sim.Run(sim.Config{Seed: 7, Faults: []sim.Fault{}})
	if err != nil {
		t.Fatal(err)
	}
	if without.Hash == first.Hash || without.Stats.Faults != 0 {
		t.Error("an empty list does not mean that there are no faults")
	}
}

func TestConfigNamesEveryViolation(t *testing.T) {
	_, err := sim.Run(sim.Config{Replicas: -1, Tenants: 1000, Steps: -1, TTL: 1, Faults: []sim.Fault{{Kind: sim.Cut}}})
	if coord.CodeOf(err) != coord.CodeOptionsInvalid {
		t.Fatal(err)
	}
	for _, want := range []string{"Replicas", "Tenants", "Steps", "TTL", "store must be"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
