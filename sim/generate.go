package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// sites are where a fault can wait for a call.
var sites = []string{
	"leases.acquire", "leases.keepalive", "leases.release", "leases.forget", "leases.settle",
	"copies.list", "copies.create-origin", "copies.create-image", "copies.create-manifest",
	"copies.open-manifest", "copies.open-image", "copies.open-origin", "copies.delete",
}

// stops are where a process can wait to be stopped or killed.
var stops = append(slices.Clone(sites), commitSite, committingSite, "gate.settle", "gate.run", "gate.publish", "gate.serve", "gate.read")

// usualFaults say how often each kind of fault is drawn, in parts of a whole.
var usualFaults = map[FaultKind]int{
	Stop: 26, Crash: 12, Cut: 12, Slow: 4, Refuse: 8, Unclear: 8, Silent: 8, Hang: 12, Repeat: 4, Corrupt: 2, Lose: 1, Backwards: 3,
}

// generate makes the faults of a seed.
func generate(rng *rand.Rand, cfg Config) []Fault {
	usual := make([]int, len(kinds))
	for i, k := range kinds {
		usual[i] = usualFaults[k]
	}
	g := generator{rng: rng, cfg: cfg, shares: shares(rng, usual)}
	faults := []Fault{}
	for range rng.IntN(2 + cfg.Steps/40) {
		faults = append(faults, g.one())
	}
	faults = append(faults, g.plot()...)
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Step - b.Step })
	return faults
}

// plot draws faults that belong together now and then, since by themselves they seldom meet:
// an owner that is superseded in the middle of a copy, and whose successors die before they
// have one, an owner that wakes up after a rollback, an upload that outlasts a forget, and a forget
// that leaves something behind.
func (g generator) plot() []Fault {
	r, step := g.rng.IntN(g.cfg.Replicas), g.rng.IntN(1+g.cfg.Steps*2/3)
	long := g.cfg.TTL + g.duration()
	at := g.pick([]string{"copies.create-manifest", "copies.create-manifest", "copies.create-image", "gate.publish"})
	switch g.rng.IntN(8) {
	case 0:
		return []Fault{{Step: step, Kind: Stop, Replica: r, At: at, For: long, N: uint64(g.rng.IntN(2))}}
	case 1:
		return []Fault{{Step: step, Kind: Crash, Replica: r, At: at, For: long}}
	case 2:
		return []Fault{
			{Step: step, Kind: Stop, Replica: r, At: "copies.create-origin", For: 2 * long},
			{Step: step + 20, Kind: Backwards, For: long},
		}
	case 3, 4:
		faults := []Fault{{Step: step / 2, Kind: Stop, Replica: r, At: "copies.create-manifest:snap-000002", For: long, N: 1}}
		for other := range g.cfg.Replicas {
			if other != r {
				refused := Fault{Step: step / 2, Kind: Refuse, Replica: other, At: "copies.create-image"}
				faults = append(faults, refused, refused, Fault{Step: step/2 + 120 + g.rng.IntN(160), Kind: Crash, Replica: other, For: g.cfg.TTL / 2})
			}
		}
		return faults
	case 6: // a forget deletes origins, and hardly anything else does
		var faults []Fault
		for each := range g.cfg.Replicas {
			faults = append(faults, Fault{Step: step / 4, Kind: Refuse, Replica: each, At: "copies.delete-origin"})
		}
		return faults
	case 5:
		return []Fault{{Step: step, Kind: Hang, Replica: r, At: at}, {Step: step, Kind: Refuse, Replica: r, At: "copies.delete"}}
	}
	return nil
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
		f.Replica = g.rng.IntN(g.cfg.Replicas)
	}
	switch f.Kind {
	case Stop, Crash:
		f.For, f.N = g.duration(), uint64(g.rng.IntN(2))
		if g.rng.IntN(2) == 0 {
			f.At = g.pick(stops)
		}
	case Cut, Slow:
		f.Store, f.For = g.pick([]string{leases, copies}), g.duration()
	case Refuse, Unclear, Silent, Hang:
		f.At = g.pick(sites)
	case Repeat:
		f.At = g.pick(repeatable)
	case Corrupt, Lose:
		f.N = g.rng.Uint64N(1 << 32)
	case Backwards:
		f.For = g.duration()
	}
	return f
}

// repeatable are the calls whose requests a network may deliver twice.
var repeatable = []string{"leases.keepalive", "leases.release", "leases.forget", "copies.create-image", "copies.create-manifest", "copies.delete"}

// duration is up to two and a half leases.
func (g generator) duration() time.Duration {
	return (g.cfg.TTL*time.Duration(g.rng.IntN(250)+1)/100 + 1).Truncate(time.Millisecond)
}

func (g generator) pick(from []string) string { return from[g.rng.IntN(len(from))] }
