package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// Run makes one history and judges it. Several may be made at once, each by itself.
//
// It fails if cfg is not valid or there is no room for the ledgers. What the fleet did
// wrong is in the result.
func Run(cfg Config) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	cfg = cfg.withDefaults()
	dir, err := os.MkdirTemp(cfg.Dir, "leasehold-sim-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	var w *world
	// A bubble gives what a simulation of goroutines needs: a clock that moves only when
	// nothing can go on, and the knowledge of when that is. It asks for a test, and is
	// content with an empty one.
	synctest.Test(&testing.T{}, func(*testing.T) {
		w = newWorld(cfg, dir)
		w.live()
	})
	return w.result(), nil
}

func newWorld(cfg Config, dir string) *world {
	w := &world{dir: dir, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), begun: time.Now(), trace: cfg.Trace}
	w.mu.stopped = make(map[*timer]bool)
	// Whatever is given, the same is drawn, so that a result's Config makes it again.
	ttl := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}[w.rng.IntN(3)]
	copiesIn := []time.Duration{1, 2, 8, 40}[w.rng.IntN(4)]
	if cfg.TTL == 0 {
		cfg.TTL = ttl
	}
	if cfg.SnapshotEvery == 0 {
		cfg.SnapshotEvery = cfg.TTL * copiesIn / 2
	}
	generated, plot := generate(w.rng, cfg)
	if cfg.Faults == nil {
		cfg.Faults = generated
	}
	w.cfg = cfg
	w.hot = w.rng.IntN(2) == 0
	w.idleHandoff = cfg.TTL * time.Duration([]int{0, 0, 1, 2}[w.rng.IntN(4)])
	w.endsInCrash = w.rng.IntN(2) == 0
	w.timePasses = []int{2, 4, 4, 12}[w.rng.IntN(4)]
	w.mayRollBack = slices.ContainsFunc(cfg.Faults, func(f Fault) bool { return f.Kind == Backwards })
	never := plot.never
	if w.mayRollBack {
		// What was forgotten is remembered by the lease store alone: a backup of it from
		// before brings back what was not yet deleted.
		never = append([]string{"forget"}, never...)
	}
	w.shares = usualActs(w.rng, plot.busy, never)
	w.faults = slices.Clone(cfg.Faults)
	slices.SortStableFunc(w.faults, func(a, b Fault) int { return a.Step - b.Step })
	for i := range cfg.Tenants {
		key, err := coord.NewKey("sim", fmt.Sprintf("t-%032x", i+1))
		must(err)
		w.keys = append(w.keys, key)
	}
	w.truth = newTruth(w)
	w.leases = newLeaseServer(w)
	w.copies = newCopyServer(w)
	for i := range cfg.Replicas {
		// Over one TTL the clocks differ by less than the margin, which is a fifth of it.
		drift := (w.rng.Float64()*2 - 1) * 0.18
		if w.rng.IntN(2) == 0 {
			drift = math.Copysign(0.18, drift)
		}
		w.replicas = append(w.replicas, &replica{
			index: i, rate: 1 + drift, offset: time.Duration(w.rng.Int64N(int64(1000 * time.Hour))),
			cut: make(map[string]int), slow: make(map[string]int),
		})
	}
	for i := range cfg.Clients {
		w.clients = append(w.clients, w.newClient(i+1))
	}
	return w
}

func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// live is the whole life of a world.
func (w *world) live() {
	for _, r := range w.replicas {
		w.start(r, "")
	}
	for _, c := range w.clients {
		w.goroutines.Go(c.work)
	}
	w.run(w.cfg.Steps, func() bool { return false })
	w.heals()
	w.stats.Steps, w.stats.Simulated, w.stats.Histories = w.step, w.now(), 1
	w.end()
}

// end takes everything down, so that the bubble can end.
func (w *world) end() {
	w.heal(func(healing) bool { return true })
	w.mu.Lock()
	w.ended, w.over = true, true
	w.mu.Unlock()
	for _, r := range w.replicas {
		if r.proc != nil {
			w.takeDown(r.proc)
			r.proc = nil
		}
	}
	for len(w.parked) > 0 {
		w.wake(0)
		w.settle()
	}
	w.goroutines.Wait()
}

func (w *world) result() Result {
	w.takeNotes()
	h := w.truth.grantsThatCount(w.events)
	r := Result{Config: w.cfg, History: h, Violations: w.truth.violations(), Stats: w.stats}
	sum := sha256.New()
	must(h.Write(sum))
	r.Hash = hex.EncodeToString(sum.Sum(nil))
	if len(r.Violations) == 0 {
		r.Violations = history.Check(h)
	}
	r.Stats.count(history.Summarize(h))
	return r
}
