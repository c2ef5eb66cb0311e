package sim

import "slices"

// A plot is a set of faults that belong together, since by themselves they seldom meet, in
// a history in which clients do some things more often than usual, and others not at all.
type plot struct {
	busy   []string // acts
	never  []string // acts
	faults func(g generator) []Fault
}

// Leases that begin and end without everybody knowing.
var leasePlots = []plot{
	// Acquisitions whose answers are lost, and what settles them as well; some of whoever
	// made them die.
	{busy: []string{"hand off"}, faults: func(g generator) []Fault {
		var all []Fault
		for range 2 * g.cfg.Replicas {
			kind := []FaultKind{Unclear, Silent, Hang, Refuse}[g.rng.IntN(4)]
			f := Fault{Step: g.within(0, 90), Kind: kind, Replica: g.replica(), At: g.pick("leases.acquire", "leases.acquire", "leases.settle")}
			all = append(all, f)
		}
		r, at := g.replica(), g.pick("leases.acquire", "leases.settle")
		return append(all, Fault{Step: g.within(0, 70), Kind: Crash, Replica: r, At: at, For: g.duration(), N: uint64(g.rng.IntN(2))})
	}},
	// Acquisitions that come late, of a replica that is stopped or cut off just then.
	{busy: []string{"hand off"}, faults: func(g generator) []Fault {
		return g.each(func(r int) Fault {
			return Fault{Step: g.within(0, 80), Kind: Stop, Replica: r, At: "leases.acquire", For: g.leases(0.3, 2), N: uint64(g.rng.IntN(2))}
		})
	}},
	// A lease store that is gone for longer than a lease.
	{faults: func(g generator) []Fault {
		step, long := g.within(20, 70), g.leases(1.2, 2.5)
		return g.each(func(r int) Fault { return Fault{Step: step, Kind: Cut, Replica: r, Store: leases, For: long} })
	}},
	// A lease store that becomes slow, and then takes no renewals.
	{never: []string{"hand off", "move", "abandon"}, faults: func(g generator) []Fault {
		step, long := g.within(10, 50), g.leases(1.2, 2.5)
		slow := g.each(func(r int) Fault { return Fault{Step: step, Kind: Slow, Replica: r, Store: leases, For: 2 * long} })
		return append(slow, g.each(func(r int) Fault {
			return Fault{Step: step + g.within(5, 25), Kind: Refuse, Replica: r, At: "leases.keepalive", For: long}
		})...)
	}},
	// Releases that are not answered.
	{busy: []string{"abandon", "abandon", "hand off"}, faults: func(g generator) []Fault {
		return g.each(func(r int) Fault {
			kind := []FaultKind{Silent, Silent, Unclear, Hang}[g.rng.IntN(4)]
			return Fault{Step: g.within(5, 40), Kind: kind, Replica: r, At: "leases.release", For: g.leases(1, 4)}
		})
	}},
}

// Owners that stop for longer than a lease where it matters.
var pausePlots = []plot{
	// Around a commit.
	{faults: func(g generator) []Fault {
		return g.each(func(r int) Fault {
			at := g.pick(commitSite, committingSite, committingSite, "gate.settle", "gate.settle", "gate.run", "gate.read")
			return Fault{Step: g.within(10, 80), Kind: Stop, Replica: r, At: at, For: g.leases(1, 2.5)}
		})
	}},
	// In the middle of a copy.
	{busy: []string{"snapshot"}, faults: func(g generator) []Fault {
		at := g.pick("copies.create-manifest", "copies.create-manifest", "copies.create-image", "gate.publish")
		f := Fault{Step: g.within(0, 66), Kind: Stop, Replica: g.replica(), At: at, For: g.leases(1, 3.5), N: uint64(g.rng.IntN(2))}
		if g.rng.IntN(2) == 0 {
			f.Kind = Crash
		}
		return []Fault{f}
	}},
	// During a claim, with a lease store that falls back meanwhile.
	{faults: func(g generator) []Fault {
		step, long := g.within(0, 66), g.leases(0.5, 3)
		return []Fault{
			{Step: step, Kind: Stop, Replica: g.replica(), At: "copies.create-origin", For: g.leases(2, 7)},
			{Step: step + 20, Kind: Backwards, For: long},
		}
	}},
	// For ever in the middle of a second copy, which arrives nevertheless, when there is a
	// successor; that one dies before it has a copy.
	{busy: []string{"snapshot", "snapshot", "append"}, never: []string{"hand off", "move", "abandon", "forget"}, faults: func(g generator) []Fault {
		all := g.each(func(r int) Fault {
			return Fault{Kind: Crash, Replica: r, At: "copies.create-manifest:e00000001/snap-000002", For: g.leases(0.5, 3), N: 1}
		})
		return append(all, g.each(func(r int) Fault {
			return Fault{Kind: Crash, Replica: r, At: "copies.create-image:e00000002/snap-000001", For: g.leases(0.5, 2)}
		})...)
	}},
}

// A lease store that falls back.
var rollbackPlots = []plot{
	// And replicas that are killed then: those that start know nothing of what it was before.
	{busy: []string{"hand off", "snapshot"}, faults: func(g generator) []Fault {
		step := g.within(20, 60)
		all := g.each(func(r int) Fault {
			return Fault{Step: step + g.within(0, 5), Kind: Crash, Replica: r, For: g.leases(0.1, 1.5), N: uint64(g.rng.IntN(2))}
		})
		return append(all, Fault{Step: step, Kind: Backwards, For: g.leases(0.05, 1)})
	}},
}

// Tenants that are forgotten while something is under way.
var forgetPlots = []plot{
	// Uploads that arrive afterwards.
	{busy: []string{"forget", "snapshot"}, faults: func(g generator) []Fault {
		at := g.pick("copies.create-manifest", "copies.create-image")
		return g.each(func(r int) Fault {
			return Fault{Step: g.within(10, 70), Kind: Hang, Replica: r, At: at, For: g.leases(0.5, 2)}
		})
	}},
	// Deletions that fail; hardly anything else deletes origins.
	{busy: []string{"forget"}, faults: func(g generator) []Fault {
		at := g.pick("copies.delete", "copies.delete-origin")
		return g.each(func(r int) Fault {
			return Fault{Step: g.within(10, 70), Kind: Refuse, Replica: r, At: at, For: g.leases(2, 8)}
		})
	}},
}

// Handoffs whose last copy fails.
var handoffPlots = []plot{
	{busy: []string{"hand off", "append"}, faults: func(g generator) []Fault {
		return g.each(func(r int) Fault {
			kind := []FaultKind{Refuse, Hang, Unclear, Silent}[g.rng.IntN(4)]
			return Fault{Step: g.within(5, 70), Kind: kind, Replica: r, At: g.pick("copies.create-manifest", "copies.create-image"), For: g.leases(0.2, 2)}
		})
	}},
}

var plots = slices.Concat(leasePlots, pausePlots, rollbackPlots, forgetPlots, handoffPlots)
