package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// sites are where a fault can wait for a call.
var sites = []string{
	"leases.acquire", "leases.keepalive", "leases.release", "leases.forget", "leases.settle",
	"leases.read", "leases.want", "leases.wait",
	"copies.list", "copies.create-origin", "copies.create-image", "copies.create-manifest",
	"copies.open-manifest", "copies.open-image", "copies.open-origin", "copies.delete",
}

// stops are where a process can wait to be stopped or killed.
var stops = append(slices.Clone(sites), commitSite, committingSite, "gate.settle", "gate.run", "gate.publish", "gate.serve", "gate.read")

// repeatable are the calls whose requests a network may deliver twice.
var repeatable = []string{"leases.keepalive", "leases.release", "leases.forget", "copies.create-image", "copies.create-manifest", "copies.delete"}

// usualFaults say how often each kind of fault is drawn, in parts of a whole.
var usualFaults = map[FaultKind]int{
	Stop: 26, Crash: 12, Cut: 12, Slow: 4, Refuse: 8, Unclear: 8, Silent: 8, Hang: 12, Repeat: 4, Corrupt: 2, Lose: 1, Backwards: 3,
}

// generate makes the faults of a seed, and the plot that some of them belong to. Half of the
// histories with a plot have little beside it, so that it is played to its end.
func generate(rng *rand.Rand, cfg Config) ([]Fault, plot) {
	usual := make([]int, len(kinds))
	for i, k := range kinds {
		usual[i] = usualFaults[k]
	}
	g := generator{rng: rng, cfg: cfg, shares: shares(rng, usual)}
	p := plot{faults: func(generator) []Fault { return nil }}
	some := 2 + cfg.Steps/40
	if rng.IntN(8) > 0 {
		p = plots[rng.IntN(len(plots))]
		some >>= 2 * rng.IntN(2)
	}
	faults := []Fault{}
	for range rng.IntN(some) {
		faults = append(faults, g.one())
	}
	faults = append(faults, p.faults(g)...)
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Step - b.Step })
	return faults, p
}

// A generator draws faults for one history.
type generator struct {
	rng    *rand.Rand
	cfg    Config
	shares []int // of kinds
}

func (g generator) one() Fault {
	f := Fault{Step: g.rng.IntN(g.cfg.Steps), Kind: kinds[draw(g.rng, g.shares)]}
	if f.usesReplica() {
		f.Replica = g.replica()
	}
	switch f.Kind {
	case Stop, Crash:
		f.For, f.N = g.duration(), uint64(g.rng.IntN(2))
		if g.rng.IntN(2) == 0 {
			f.At = g.pick(stops...)
		}
	case Cut, Slow:
		f.Store, f.For = g.pick(leases, copies), g.duration()
	case Refuse, Unclear, Silent, Hang:
		f.At = g.pick(sites...)
		if g.rng.IntN(8) == 0 {
			f.For = g.duration()
		}
	case Repeat:
		f.At = g.pick(repeatable...)
	case Corrupt, Lose:
		f.N = g.rng.Uint64N(1 << 32)
	case Backwards:
		f.For = g.duration()
	}
	return f
}

// duration is up to two and a half leases.
func (g generator) duration() time.Duration { return g.leases(0.01, 2.5) }

// leases is a time between two multiples of a lease's.
func (g generator) leases(from, to float64) time.Duration {
	ttls := from + (to-from)*g.rng.Float64()
	return max(time.Duration(ttls*float64(g.cfg.TTL)).Truncate(time.Millisecond), time.Millisecond)
}

// within is a step in the given part of the history, in percent.
func (g generator) within(from, to int) int {
	return g.cfg.Steps * (from + g.rng.IntN(to-from)) / 100
}

func (g generator) replica() int { return g.rng.IntN(g.cfg.Replicas) }

func (g generator) pick(from ...string) string { return from[g.rng.IntN(len(from))] }

// each draws a fault of every replica.
func (g generator) each(one func(r int) Fault) []Fault {
	all := make([]Fault, 0, g.cfg.Replicas)
	for r := range g.cfg.Replicas {
		all = append(all, one(r))
	}
	return all
}
