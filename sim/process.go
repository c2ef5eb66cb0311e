package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// A replica is a place for processes, one after the other.
type replica struct {
	index       int
	incarnation int
	rate        float64
	offset      time.Duration
	cut         map[string]int // by store: how many faults cut it off
	slow        map[string]int
	proc        *process // nil while it is down
}

// A process is one incarnation of a replica: the real router on simulated stores.
type process struct {
	world   *world
	id      string // also the owner's name
	index   int
	replica *replica
	dir     string
	clock   *clock
	leases  *leaseClient
	router  *router.Router

	stoppedUntil time.Duration
	gone         bool // guarded by world.mu
	goneAt       time.Duration
	openers      map[coord.Key]*openers // guarded by world.mu
}

// runs reports whether a process gets to run at this moment; clients always do.
func (p *process) runs() bool { return p == nil || p.stoppedUntil <= p.world.now() }

func (p *process) isGone() bool {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.gone
}

// start brings a replica up. What the process before it left on its disk is there.
func (w *world) start(r *replica, left string) {
	r.incarnation++
	p := &process{world: w, id: fmt.Sprintf("r%d.%d", r.index, r.incarnation), index: r.index, replica: r, openers: make(map[coord.Key]*openers)}
	p.dir = filepath.Join(w.dir, p.id)
	must(os.MkdirAll(p.dir, 0o700))
	if left != "" {
		must(os.CopyFS(p.dir, os.DirFS(left)))
	}
	p.clock = &clock{proc: p, rate: r.rate, offset: r.offset}
	p.leases = newLeaseClient(p)
	rt, err := router.New(router.Options{
		ReplicaID: p.id, StateRoot: p.dir, Leases: p.leases, Copies: &copyClient{p}, Clock: p.clock,
		LeaseTTL: w.cfg.TTL, LeaseMargin: w.cfg.TTL / 5, SnapshotEvery: w.cfg.SnapshotEvery,
		DrainTimeout: 2 * w.cfg.TTL, StoreTimeout: w.cfg.TTL / 2,
		CopyTimeout: w.cfg.TTL / 2, CopyStallTimeout: w.cfg.TTL / 2,
		MinTenure: w.cfg.TTL / 4, IdleClose: w.cfg.TTL / 2, IdleHandoff: w.idleHandoff,
		CloseConcurrency: 1, Observer: func(e router.Event) { w.observe(p, e) },
	})
	must(err)
	p.router = rt
	r.proc = p
	w.logf("%s is up", p.id)
}

// kill ends a process at once: what its goroutines still do reaches nothing. It returns the
// directory with what was on its disk at that moment.
func (w *world) kill(r *replica) (left string) {
	p := r.proc
	r.proc = nil
	w.logf("%s is killed", p.id)
	left = p.dir + "-left"
	must(os.CopyFS(left, os.DirFS(p.dir)))
	for _, c := range w.clients {
		c.lose(p)
	}
	w.takeDown(p)
	return left
}

// takeDown wakes every goroutine of p with an error and has the router undo itself.
func (w *world) takeDown(p *process) {
	p.goneAt = w.now()
	w.mu.Lock()
	p.gone = true
	w.mu.Unlock()
	kept := w.parked[:0]
	for _, o := range w.parked {
		if o.proc != p {
			kept = append(kept, o)
			continue
		}
		o.err = errGone
		o.wake <- struct{}{}
	}
	w.parked = kept
	timers := w.timers[:0]
	for _, t := range w.timers {
		if t.proc != p {
			timers = append(timers, t)
		}
	}
	w.timers = timers
	p.leases.stop()
	w.goroutines.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.router.Close(ctx)
		must(os.RemoveAll(p.dir))
	})
	w.settle()
}

// must is for what can only fail because of the machine that the simulation runs on.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// observe is what the process' router tells; see [router.Options.Observer].
func (w *world) observe(p *process, e router.Event) {
	if p.isGone() {
		return
	}
	w.truth.observed(p, e)
}
