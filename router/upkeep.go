package router

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// A chore is something that an open tenant needs again and again.
type chore struct {
	every time.Duration
	due   time.Duration // on the router's clock
	do    func()
}

// upkeep does the chores of a tenant until the tenure ends. They share a goroutine,
// because a replica holds thousands of tenants; renewals have one of their own, because
// nothing may delay them.
func (h *Handle) upkeep() {
	chores := h.chores()
	for {
		next := slices.MinFunc(chores, func(a, b *chore) int { return cmp.Compare(a.due, b.due) })
		if !h.sleep(next.due - h.router.opts.Clock.Now()) {
			return
		}
		next.do()
		next.due = h.router.opts.Clock.Now() + next.every
	}
}

// chores returns what there is to do, each first after a part of its period that differs
// from tenant to tenant: a replica that opened a thousand at once does not copy
// a thousand at once.
func (h *Handle) chores() []*chore {
	opts := h.router.opts
	chores := []*chore{{every: opts.IdleClose / 2, do: h.rest}}
	if opts.SnapshotEvery > 0 {
		chores = append(chores, &chore{every: opts.SnapshotEvery, do: h.copyPeriodically})
	}
	if opts.DrillEvery > 0 {
		// Twice, so that a proof is not older than that while proofs take less than half of it.
		chores = append(chores, &chore{every: opts.DrillEvery / 2, do: h.startDrill})
	}
	for _, c := range chores {
		c.due = opts.Clock.Now() + h.phase(c.every)
	}
	return chores
}

// phase returns a time within (0, period] that is the same whenever this tenure asks.
func (h *Handle) phase(period time.Duration) time.Duration {
	sum := fnv.New32a()
	sum.Write([]byte(h.key.String()))
	sum.Write([]byte(h.Epoch().String()))
	return time.Duration(float64(period) * (float64(sum.Sum32()) + 1) / (1 << 32))
}

// rest lets an unused database go to rest, and hands off a tenant that has been at rest
// for long enough.
func (h *Handle) rest() {
	if h.State() != StateServing {
		return
	}
	resting, err := h.db.Rest()
	if err != nil && !h.endIfUseless(h.judgeFile(err)) {
		h.log().Warn("the connections to an unused ledger did not close cleanly", zap.Error(err))
	}
	now := h.router.opts.Clock.Now()
	switch {
	case !resting || h.working():
		h.resting = false
	case !h.resting:
		h.resting, h.restsSince = true, now
		h.router.rested.Store(true)
	case h.router.opts.IdleHandoff > 0 && now-h.restsSince >= h.router.opts.IdleHandoff:
		h.resting = false // a handoff that fails is tried again after the same time
		h.router.background.Go(h.handOffUnused)
	}
	h.router.returnMemory(now)
}

// returnMemory gives back what the connections of tenants that went to rest have left,
// for all of them together, once in IdleClose.
func (r *Router) returnMemory(now time.Duration) {
	last := r.returned.Load()
	if !r.rested.Load() || now-time.Duration(last) < r.opts.IdleClose || !r.returned.CompareAndSwap(last, int64(now)) {
		return
	}
	r.rested.Store(false)
	fencing.ReturnMemory()
}

// working reports whether calls of Run are under way: they may use the database yet.
func (h *Handle) working() bool {
	n, _, err := h.inFlight(StateServing)
	return n > 0 || err != nil
}

// handOffUnused runs beside the upkeep, which the handoff waits for. Handoff and
// handoffFailed say what went wrong.
func (h *Handle) handOffUnused() { _ = h.Handoff(context.Background()) }

// judgeFile gives SQLite's word that the local ledger is damaged its code.
func (h *Handle) judgeFile(err error) error {
	if coord.CodeOf(err) != "" || !fencing.Damaged(err) {
		return err
	}
	return &coord.Error{
		Code: coord.CodeLedgerDamaged, Key: h.key, Detail: "the local file does not hold what was written to it", Err: err,
		Hint: "look at the disk, and keep other programs out of the state directory",
	}
}

// endIfUseless ends the tenure, as an abandon does, if err says that its ledger is not there
// any more or damaged: nothing of it could be copied, so the lease serves nobody.
func (h *Handle) endIfUseless(err error) bool {
	if !errors.Is(err, coord.CodeLedgerGone) && !errors.Is(err, coord.CodeLedgerDamaged) {
		return false
	}
	if _, ok := h.end(err, StateServing); ok {
		h.log().Error("the local ledger is gone or damaged; writes since the last copy are lost", zap.Error(err))
		// Not here, because upkeep and running work may be among those that say so.
		go func() { _ = h.letGo(context.Background()) }()
	}
	return true
}

// copyPeriodically makes a copy of a ledger that has changed. Copies of all tenants
// take turns for the router's slots, first come, first served; one that is
// stuck keeps its slot until the copy store's time limits end it.
func (h *Handle) copyPeriodically() {
	if h.State() != StateServing {
		return
	}
	if looked := h.now(); h.copies.upToDate() {
		h.copies.level.reached(looked)
		return // which costs neither a turn nor a call to the store
	}
	select {
	case h.router.copying <- struct{}{}:
	case <-h.ctx.Done():
		return
	}
	defer func() { <-h.router.copying }()
	if h.State() != StateServing {
		return
	}
	manifest, err := h.publish(h.ctx, ifChanged)
	h.endIfUseless(err)
	if err == nil && manifest.Seq > 0 {
		h.copies.retain(h.ctx)
	}
}
