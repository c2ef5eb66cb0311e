package sim

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/leaseholddb/leasehold/sim/history"
)

// A Campaign makes many histories.
type Campaign struct {
	Config              // of all of them; Seed is the first one
	Seeds   int         // how many; zero means one
	Workers int         // how many at once; zero means one for each processor
	Each    func(Stats) // called after each history with what all have counted so far; may be nil
}

// Run makes the histories, until one breaks an invariant or ctx ends. It returns what all
// counted and the result that failed, of the lowest seed if there are several, or nil.
func (c Campaign) Run(ctx context.Context) (Stats, *Result, error) {
	if err := c.Validate(); err != nil {
		return Stats{}, nil, err
	}
	workers := c.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var total Stats
	var failed *Result
	var failure error
	next := uint64(0)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return c.Seed + next - 1, next <= uint64(max(c.Seeds, 1)) && ctx.Err() == nil
	}
	note := func(r Result, err error) {
		mu.Lock()
		defer mu.Unlock()
		total.Add(r.Stats)
		switch {
		case err != nil:
			failure = err
			cancel()
		case len(r.Violations) > 0:
			if failed == nil || r.Config.Seed < failed.Config.Seed {
				failed = &r
			}
			cancel()
		}
		if c.Each != nil {
			c.Each(total)
		}
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				cfg := c.Config
				cfg.Seed = seed
				note(Run(cfg))
			}
		})
	}
	all.Wait()
	return total, failed, failure
}

// maxShrink bounds how many histories Shrink makes.
const maxShrink = 300

// Shrink looks for the shortest list of faults with which the history of r's seed still
// breaks an invariant, by leaving faults out, and returns that result. Without one fault
// everything that follows may be different, so what is found need not be the shortest there
// is; but none of its faults can be left out.
func Shrink(r Result) (Result, error) {
	budget := maxShrink
	fails := func(faults []Fault) (bool, error) {
		budget--
		cfg := r.Config
		cfg.Faults, cfg.Trace = faults, nil
		again, err := Run(cfg)
		if err != nil || len(again.Violations) == 0 {
			return false, err
		}
		r = again
		return true, nil
	}
	for size := max(len(r.Config.Faults)/2, 1); size > 0 && budget > 0; {
		smaller := false
		for at := 0; at < len(r.Config.Faults) && budget > 0; {
			left := slices.Delete(slices.Clone(r.Config.Faults), at, min(at+size, len(r.Config.Faults)))
			still, err := fails(left)
			if err != nil {
				return r, err
			}
			if still {
				smaller = true
				continue
			}
			at += size
		}
		if !smaller || size > 1 {
			size /= 2
		}
	}
	return r, nil
}

// WriteReport writes a page that shows the history; see [history.WriteReport].
func (r Result) WriteReport(w io.Writer) error {
	return history.WriteReport(w, history.Report{
		Title: fmt.Sprintf("Simulation, seed %d", r.Config.Seed), Command: r.Config.Command(), History: r.History, Violations: r.Violations,
	})
}
