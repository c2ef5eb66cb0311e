package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

var errStore = errors.New("simulated failure of the store")

func (w *world) replicaName(f Fault) string {
	if !f.usesReplica() {
		return ""
	}
	return fmt.Sprintf("r%d", f.Replica)
}

// begin makes a fault happen, or has it wait for its site.
func (w *world) begin(f Fault) {
	if f.usesReplica() && f.Replica >= len(w.replicas) || f.Kind == Backwards && w.rolledBack {
		return // a second rollback would forget what the operator did
	}
	switch {
	case f.At != "":
		w.armed = append(w.armed, &f)
		if f.lasts() {
			w.starts(f)
			disarm := func() { w.armed = slices.DeleteFunc(w.armed, func(o *Fault) bool { return o == &f }) }
			w.healing = append(w.healing, healing{at: w.now() + f.For, fault: f, undo: disarm})
		}
	default:
		w.strike(f)
	}
}

// starts notes that a fault has an effect from now on.
func (w *world) starts(f Fault) {
	w.stats.Faults++
	w.logf("fault: %s", f)
	w.record("", history.Event{Kind: history.Fault, Replica: w.replicaName(f), Text: f.String()})
}

// strike makes a fault happen now that does not concern one call.
func (w *world) strike(f Fault) {
	w.starts(f)
	undo := func() {}
	r := w.replicas[f.Replica]
	switch f.Kind {
	case Stop:
		if p := r.proc; p != nil {
			p.stoppedUntil = max(p.stoppedUntil, w.now()+f.For)
			if f.N > 0 {
				w.holdBack(p)
			}
		}
	case Crash:
		if r.proc != nil {
			if f.N > 0 {
				w.letLand(r.proc)
			}
			left := w.kill(r)
			undo = func() { w.start(r, left) }
		}
	case Cut:
		r.cut[f.Store]++
		undo = func() { r.cut[f.Store]-- }
	case Slow:
		r.slow[f.Store]++
		undo = func() { r.slow[f.Store]-- }
	case Corrupt, Lose:
		w.damage(f)
	case Backwards:
		undo = w.rollBack(f)
	}
	at := w.now() + f.For
	if f.Kind == Backwards {
		at = w.now() + 3*w.cfg.TTL
	}
	w.healing = append(w.healing, healing{at: at, fault: f, undo: undo})
}

// holdBack has the requests of a process that is stopped leave it only when it goes on.
func (w *world) holdBack(p *process) {
	for _, o := range w.parked {
		if o.proc == p && o.target != "" && o.stage == waiting {
			o.ready = max(o.ready, p.stoppedUntil)
		}
	}
}

// letLand has the requests of a process that is killed arrive after it.
func (w *world) letLand(p *process) {
	for _, o := range w.parked {
		if o.proc == p && o.target != "" && o.stage == waiting {
			at := w.now() + w.cfg.TTL + time.Duration(w.rng.Int64N(int64(3*w.cfg.TTL)))
			w.late = append(w.late, landing{at: at, what: o.site + " " + o.detail, apply: o.apply})
		}
	}
}

// rollBack replaces the lease store by a backup. That takes longer than a lease lasts; then
// the store is there again, and in the end an operator sees to the tenants.
func (w *world) rollBack(f Fault) (operate func()) {
	w.rolledBack = true
	w.truth.rollsBack()
	w.leases.rollBack(f.For)
	for _, r := range w.replicas {
		r.cut[leases]++
	}
	back := func() {
		for _, r := range w.replicas {
			r.cut[leases]--
		}
	}
	w.healing = append(w.healing, healing{at: w.now() + w.cfg.TTL, fault: f, undo: back})
	return w.operate
}

// operate is what the documentation tells an operator to do after a rollback: raise every
// tenant's epoch above its copies, and restart the replicas that refuse the store.
func (w *world) operate() {
	for _, key := range w.keys {
		above := w.copies.newest(key)
		w.truth.isRaised(key)
		w.leases.raise(key, above)
		delete(w.copies.objects, key.String()+"/rolled-back.json")
		w.truth.raised(key, above)
	}
	for _, r := range w.replicas {
		if r.proc != nil && r.proc.leases.isBroken() {
			w.start(r, w.kill(r))
		}
	}
}

// spoil has the call that was just received meet the first armed fault that waits for it. It
// reports whether the call's effect must not happen now.
func (w *world) spoil(o *op) bool {
	if o.proc.replica.slow[o.target] > 0 {
		o.ready = w.now() + w.cfg.TTL*time.Duration(1+w.rng.IntN(6))/16
	}
	i := slices.IndexFunc(w.armed, func(f *Fault) bool {
		return f.Kind != Stop && f.Kind != Crash && f.Replica == o.proc.index && o.isAt(f.At)
	})
	if i < 0 {
		return false
	}
	f := w.armed[i]
	w.logf("meets %s: %s %s", f, o.site, o.detail)
	if !f.lasts() {
		w.armed = slices.Delete(w.armed, i, i+1)
		w.starts(*f)
		w.record("", history.Event{Kind: history.Heal, Replica: w.replicaName(*f), Text: f.String()})
	}
	switch f.Kind {
	case Refuse:
		o.err = errStore
		return true
	case Unclear:
		o.err = errStore
	case Silent:
		o.lost = true
	case Repeat:
		w.late = append(w.late, landing{at: w.now() + w.lateness(), what: "again " + o.site + " " + o.detail, apply: o.apply})
	case Hang:
		o.stage, o.hangs = waiting, true
		return true
	}
	return false
}

// ambush stops or kills a process that has reached the site which a fault waits for.
func (w *world) ambush() {
	for i := 0; i < len(w.armed); {
		f := w.armed[i]
		if f.Kind != Stop && f.Kind != Crash || !w.hasReached(f) {
			i++
			continue
		}
		w.armed = slices.Delete(w.armed, i, i+1)
		w.strike(*f)
	}
}

func (w *world) hasReached(f *Fault) bool {
	return slices.ContainsFunc(w.parked, func(o *op) bool {
		return o.proc != nil && o.proc.index == f.Replica && o.arrived == w.step && o.isAt(f.At)
	})
}

// damage changes or removes an object, and says which copies promise nothing any more.
func (w *world) damage(f Fault) {
	var names []string
	for _, name := range w.copies.names("") {
		// Without its origin an epoch may leave no trace, and a lease store that was rolled
		// back grants it again.
		evident := w.mayRollBack && strings.HasSuffix(name, "/origin.json")
		if epochOf(name) > 0 && (f.Kind == Lose && !evident || strings.HasSuffix(name, ".db")) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	name := names[f.N%uint64(len(names))]
	w.logf("%s is damaged", name)
	if f.Kind == Lose {
		delete(w.copies.objects, name)
	} else {
		body := slices.Clone(w.copies.objects[name])
		body[(f.N>>8)%uint64(len(body))] ^= 1 << (f.N % 8)
		w.copies.objects[name] = body
	}
	w.truth.damaged(name)
	parts := strings.SplitN(name, "/", 3)
	w.record("", history.Event{Kind: history.Damage, Tenant: parts[0] + "/" + parts[1], Epoch: coord.Epoch(epochOf(name)), Text: name})
}
