package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// A world is a fleet that keeps the promise by construction: one tenant's log and
// register as they are, and as the newest copy has them.
type world struct {
	*script
	random *rand.Rand
	epoch  coord.Epoch

	log, copiedLog           []string
	register, copiedRegister []string
	open                     []history.Event // calls that have not taken effect

	loseCopy bool // at each crash: what makes the world break its promise
	lossy    bool // half of the answers are lost
}

func newWorld(seed uint64) *world {
	w := &world{script: newScript(), random: rand.New(rand.NewPCG(seed, 1)), epoch: 1}
	w.grant(1, "A")
	return w
}

// play takes random steps.
func (w *world) play(steps int) {
	for i := range steps {
		switch n := w.random.IntN(100); {
		case n < 35:
			w.open = append(w.open, w.begin(history.Append, fmt.Sprintf("a%d", i)))
		case n < 45:
			w.open = append(w.open, w.begin(history.Set, fmt.Sprintf("s%d", i)))
		case n < 50:
			w.open = append(w.open, w.begin(history.Read, ""))
		case n < 55:
			w.open = append(w.open, w.begin(history.Get, ""))
		case n < 60:
			w.open = append(w.open, w.begin(history.Snapshot, ""))
		case n < 63:
			w.call(history.Handoff, w.epoch)
			w.copy()
			w.next()
		case n < 66:
			w.crash()
		case n < 67:
			w.forgetAll()
		}
		if len(w.open) > w.random.IntN(4) {
			w.answer()
		}
	}
	w.read(w.epoch, w.log...)
	w.get(w.epoch, w.register...)
}

func (w *world) copy() { w.copiedLog, w.copiedRegister = slices.Clone(w.log), slices.Clone(w.register) }

func (w *world) next() {
	w.epoch++
	w.grant(w.epoch, "A")
}

// crash goes back to the newest copy, or to anything between that and the end: a copy
// of which nobody heard.
func (w *world) crash() {
	keep := len(w.copiedLog) + w.random.IntN(len(w.log)-len(w.copiedLog)+1)
	if w.loseCopy {
		keep, w.copiedLog = 0, nil
	}
	w.log, w.register = w.log[:keep:keep], w.copiedRegister
	w.next()
}

func (w *world) forgetAll() {
	w.call(history.Forget, w.epoch)
	w.log, w.register, w.copiedLog, w.copiedRegister = nil, nil, nil, nil
	w.next()
}

// answer lets one call take effect, and tells the client, a wrong one, or nobody.
func (w *world) answer() {
	i := w.random.IntN(len(w.open))
	one := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	lost := w.random.IntN(10) == 0 || w.lossy && w.random.IntN(2) == 0
	if lost && w.random.IntN(2) == 0 {
		w.ends(one, history.Unknown) // it did not even arrive, or it arrives later
		if w.random.IntN(2) == 0 {
			w.effect(one)
		}
		return
	}
	position, values := w.effect(one)
	if lost {
		w.ends(one, history.Unknown)
		return
	}
	w.ok(one, w.epoch, position, values...)
}

func (w *world) effect(one history.Event) (position uint64, values []string) {
	switch one.Call {
	case history.Append:
		w.log = append(w.log[:len(w.log):len(w.log)], one.Value)
		position = uint64(len(w.log))
	case history.Set:
		w.register = []string{one.Value}
	case history.Read:
		values = w.log
	case history.Get:
		values = w.register
	case history.Snapshot:
		w.copy()
	}
	return position, values
}

// No check may refuse what a fleet that keeps its promise can do, whatever is lost on the
// way.
func TestGoodWorlds(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		w.play(200)
		for _, v := range history.Check(w.History()) {
			t.Errorf("seed %d: refused: %s", seed, v)
		}
	}
}

// Hundreds of unknown outcomes do not make the search for an order long.
func TestLossyWorlds(t *testing.T) {
	for seed := range uint64(5) {
		w := newWorld(seed)
		w.lossy = true
		w.play(2000)
		for _, v := range history.Check(w.History()) {
			t.Errorf("seed %d: refused: %s", seed, v)
		}
	}
}

// A world that loses its copies is found.
func TestBadWorlds(t *testing.T) {
	found := 0
	const seeds = 20
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		w.loseCopy = true
		w.play(200)
		for _, v := range history.Check(w.History()) {
			if v.Invariant == history.Durable {
				found++
				break
			}
		}
	}
	if found < seeds*3/4 {
		t.Errorf("found in %d of %d worlds", found, seeds)
	}
}
