package sim

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// bound is how soon the fleet must serve again: a lease that nobody can use ends, calls
// that hang are given up, and what began before ends in its own time.
func (w *world) bound() time.Duration { return 12 * w.cfg.TTL }

// heals ends all faults and demands that every call returns, that every tenant serves, that
// a shutdown loses nothing, and a crash of everything no more than it may.
func (w *world) heals() {
	w.faults, w.armed = nil, nil
	w.run(calmSteps, func() bool { // a lease store is not restored in no time
		return !slices.ContainsFunc(w.healing, func(h healing) bool { return h.fault.Kind == Backwards })
	})
	w.logf("the faults end")
	w.calm, w.lastHarm = true, w.now()
	w.heal(func(healing) bool { return true })
	for _, r := range w.replicas {
		if r.proc != nil {
			r.proc.stoppedUntil = 0
		}
	}
	w.record("", history.Event{Kind: history.Healed, Within: w.bound()})
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	deadline := w.now() + w.bound()
	serving := make([]bool, len(w.keys))
	for i, key := range w.keys {
		w.goroutines.Go(func() { serving[i] = w.serveAgain(i, key, deadline) })
	}
	late := func() bool { return w.now() >= deadline }
	w.run(calmSteps, func() bool { return late() || !slices.Contains(serving, false) && w.clientsEnded() })
	for _, c := range w.clients {
		if !c.hasEnded() {
			w.truth.complain(callsReturn, w.keys[0], "client %d still waits for its call", c.n)
		}
	}
	for i, key := range w.keys {
		if !serving[i] {
			w.truth.complain(history.ServesAgain, key, "nobody could serve it for %v", w.bound())
		}
	}
	if len(w.truth.violations()) > 0 {
		return
	}
	// Once all have heard what they lost, and what was late has landed.
	quiet := w.now() + 2*w.cfg.TTL
	w.run(calmSteps, func() bool { return w.now() >= quiet && len(w.late) == 0 })
	w.checkSwept()
	if w.endsInCrash {
		w.crashAll()
	} else if !w.shutDown() {
		return
	}
	w.inspect()
}

// calmSteps is more than a recovery takes.
const calmSteps = 100_000

func (w *world) clientsEnded() bool {
	return !slices.ContainsFunc(w.clients, func(c *client) bool { return !c.hasEnded() })
}

func (c *client) hasEnded() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.ended
}

// serveAgain has a client write to one tenant until it is acknowledged.
func (w *world) serveAgain(i int, key coord.Key, deadline time.Duration) bool {
	c := w.newClient(len(w.clients) + 1 + i)
	for try := 0; w.now() < deadline && !w.hasEnded(); try++ {
		c.rest(w.cfg.TTL / 16)
		p := w.replicas[try%len(w.replicas)].proc
		if p == nil {
			continue
		}
		h, err := c.open(p, key)
		if err == nil {
			c.append(h, p)
		} else if w.isLostForGood(key, err) {
			return true
		}
		if c.acknowledged > 0 {
			return true
		}
	}
	return false
}

func (w *world) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// isLostForGood reports that a tenant did not open because its copies were damaged, which is
// what it then should say. If the lease store was rolled back, an operator is called.
func (w *world) isLostForGood(key coord.Key, err error) bool {
	switch coord.CodeOf(err) {
	case coord.CodeRestoreInvalid:
		return w.truth.isDamaged(key)
	case coord.CodeEpochRolledBack:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mu.operator = true
	}
	return false
}

// crashAll kills every replica.
func (w *world) crashAll() {
	for _, r := range w.replicas {
		must(os.RemoveAll(w.kill(r)))
	}
}

// shutDown closes every router, and reports whether that came to an end.
func (w *world) shutDown() bool {
	deadline := w.now() + w.bound()
	failed := make([]error, len(w.replicas))
	left := len(w.replicas)
	for i, r := range w.replicas {
		w.goroutines.Go(func() {
			failed[i] = r.proc.router.Close(context.Background())
			w.mu.Lock()
			defer w.mu.Unlock()
			left--
		})
	}
	w.run(calmSteps, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return left == 0 || w.now() >= deadline
	})
	if left > 0 {
		w.truth.complain(callsReturn, w.keys[0], "%d replicas have not shut down", left)
		return false
	}
	for i, err := range failed {
		if err != nil && !w.rolledBack {
			w.truth.complain(nothingLost, w.keys[0], "r%d shut down with %v although nothing was wrong", i, err)
		}
	}
	return true
}

// inspect opens every tenant once more, on a replica that has never seen it, after a shutdown
// or a crash of all.
func (w *world) inspect() {
	r := &replica{index: len(w.replicas), rate: 1, cut: make(map[string]int), slow: make(map[string]int)}
	w.replicas = append(w.replicas, r)
	w.start(r, "")
	left := len(w.keys)
	for i, key := range w.keys {
		c := w.newClient(2*len(w.clients) + 2 + i)
		w.goroutines.Go(func() {
			for try := 0; ; try++ {
				c.rest(w.cfg.TTL / 8)
				h, err := c.open(r.proc, key)
				if err == nil {
					c.read(h, r.proc)
					c.get(h, r.proc)
					break
				}
				if w.isLostForGood(key, err) {
					break
				}
				// What was acquired for nobody is held until its lease ends.
				if try == 32 {
					w.truth.complain(history.ServesAgain, key, "the tenant does not open after the end of all others")
					break
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			left--
		})
	}
	w.run(calmSteps, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return left == 0
	})
	quiet := w.now() + w.cfg.TTL
	w.run(calmSteps, func() bool { return w.now() >= quiet })
	w.checkSwept()
}

func (w *world) checkSwept() {
	for _, key := range w.keys {
		w.truth.checkSwept(key)
	}
}
