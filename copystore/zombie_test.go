package copystore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

// A gate stops an owner before one of its steps until it is let go.
type gate struct {
	at, steps       int
	reached, resume chan struct{}
}

func newGate(at int) *gate {
	return &gate{at: at, reached: make(chan struct{}), resume: make(chan struct{})}
}

func (g *gate) step() {
	if g.steps++; g.steps == g.at {
		close(g.reached)
		<-g.resume
	}
}

// An actor runs one owner's life in a goroutine, up to its gate and later on.
type actor struct {
	owner *owner
	gate  *gate
	done  chan struct{}
}

// start grants the next epoch and runs life until it ends or comes to step at.
// It reports whether it was stopped. Steps are the store calls and the taking of
// an image; what an owner writes after it was superseded is marked as late.
func (w *world) start(at int, life func(o *owner)) (*actor, bool) {
	g := newGate(at)
	o := w.acquire(steps(func(_ int, _ string, over bool) error {
		if !over {
			g.step()
		}
		return nil
	}))
	o.midImage = func() {
		g.step()
		if o.held() != nil {
			o.write(fmt.Sprintf("late at %d", o.grant.Epoch))
		}
	}
	a := &actor{owner: o, gate: g, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		life(o)
	}()
	select {
	case <-g.reached:
		return a, true
	case <-a.done:
		return a, false
	}
}

// finish lets the actor go on to its end.
func (a *actor) finish() {
	close(a.gate.resume)
	<-a.done
}

// liveOn opens, and publishes and retains rounds times, going on after failures as
// a process does that has not understood yet.
func liveOn(keep, rounds int) func(o *owner) {
	return func(o *owner) {
		if o.open() != nil {
			return
		}
		for i := range rounds {
			o.write(fmt.Sprintf("event %d of %d", i, o.grant.Epoch))
			o.publish()
			o.retain(keep)
		}
	}
}

// writtenBefore returns the events of content that owners before epoch e wrote.
func writtenBefore(e coord.Epoch, content []string) []string {
	var events []string
	for _, line := range content {
		writer := coord.Epoch(1) // whose events have short names
		if i := strings.LastIndexByte(line, ' '); i >= 0 {
			fmt.Sscan(line[i:], &writer)
		}
		if writer < e {
			events = append(events, line)
		}
	}
	return events
}

// verdict opens the next tenure and checks what it starts with.
func (w *world) verdict() error {
	next := w.acquire()
	if err := next.open(); err != nil {
		return fmt.Errorf("%s cannot open: %w", next.grant.Epoch, err)
	}
	for _, r := range w.mu.reported {
		if r.epoch <= w.mu.floor || r.epoch == next.grant.Epoch {
			continue
		}
		if err := contains(next.content, r.content); err != nil {
			return fmt.Errorf("%s lost what %s was told is safe: %w", next.grant.Epoch, r.epoch, err)
		}
		if err := contains(r.content, writtenBefore(r.epoch, next.content)); r.start && err != nil {
			return fmt.Errorf("%s forks from what %s started with: %w", next.grant.Epoch, r.epoch, err)
		}
	}
	for _, line := range next.content {
		if strings.HasPrefix(line, "late") {
			return fmt.Errorf("%s restored %q", next.grant.Epoch, line)
		}
	}
	return nil
}

// CP-3, CP-8, issue 5 b: an owner is stopped before each of its steps, its
// successor opens up to each of its own, the zombie goes on to its end, and then
// the successor, or the successor's successor while the successor is a zombie
// itself. Nothing late is ever restored, nothing reported is ever lost.
func TestZombieMatrix(t *testing.T) {
	for _, c := range []struct {
		keep int
		dead bool
	}{{1, true}, {2, false}} {
		t.Run(fmt.Sprintf("keep %d successor dead %v", c.keep, c.dead), func(t *testing.T) {
			combinations := 0
			for i, more := 1, true; more; i += stride {
				var found []error
				found, more = zombieRow(t, i, c.keep, c.dead, false)
				for _, err := range found {
					if combinations++; err != nil {
						t.Error(err)
					}
				}
			}
			if combinations < 100/(stride*stride) {
				t.Errorf("only %d combinations", combinations)
			}
		})
	}
}

// Issue 5 b: the same matrix finds what happens without a lineage.
func TestZombieMatrixFindsTheMissingLineage(t *testing.T) {
	for i, more := 1, true; more; i++ {
		var found []error
		found, more = zombieRow(t, i, 1, true, true)
		for _, err := range found {
			if err != nil {
				t.Logf("as it should: %v", err)
				return
			}
		}
	}
	t.Error("the matrix passes though owners restore the newest copy of all")
}

// zombieRow stops the zombie at step i and its successor at every step, and returns
// what each combination comes to. It reports whether the zombie has so many
// steps.
func zombieRow(t *testing.T, i, keep int, dead, newestWins bool) (results []error, more bool) {
	for j := 1; ; j += stride {
		w := newWorld(t)
		w.newestWins = newestWins
		w.tenure("a1", "a2")
		zombie, stopped := w.start(i, liveOn(keep, 2))
		if !stopped {
			return results, false
		}
		successor, more := w.start(j, liveOn(keep, 1))
		zombie.finish()
		err := w.conclude(successor, more, keep, dead)
		if err != nil {
			err = fmt.Errorf("zombie stopped before step %d, successor before step %d: %w", i, j, err)
		}
		results = append(results, err)
		if !more {
			return results, true
		}
	}
}

func (w *world) conclude(successor *actor, stopped bool, keep int, dead bool) error {
	if stopped && !dead {
		successor.finish()
	}
	if err := w.verdict(); err != nil {
		if stopped && dead {
			successor.finish()
		}
		return err
	}
	next := w.acquire()
	liveOn(keep, 1)(next)
	if stopped && dead {
		successor.finish()
	}
	return w.verdict()
}

// CP-9: an owner forgets while its predecessor is stopped at each step, and the
// predecessor goes on in the middle of the forget or after it.
func TestZombieAndForget(t *testing.T) {
	for i := 1; ; i += stride {
		w := newWorld(t)
		w.tenure("a1")
		zombie, stopped := w.start(i, liveOn(1, 2))
		if !stopped {
			return
		}
		forgetter := w.acquire()
		must(t, forgetter.open())
		_, err := forgetter.forget()
		must(t, err)
		zombie.finish()
		next := w.acquire()
		if err := next.open(); err != nil || len(next.content) > 0 {
			t.Errorf("zombie stopped before step %d: the next owner has %q (%v)", i, next.content, err)
		}
		if _, err := next.copies.Forget(t.Context(), w.key, w.mu.floor); err != nil {
			t.Error(err)
		}
		if got := w.names(); len(got) != 1 || got[0] != "e00000004/origin.json" {
			t.Errorf("zombie stopped before step %d: left %q", i, got)
		}
	}
}
