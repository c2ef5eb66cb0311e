package router

import (
	"errors"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// minRenewTimeout keeps the last attempts before the fence from being so short
// that a healthy store could not answer them.
const minRenewTimeout = 100 * time.Millisecond

// renewalMoments is how many moments there are in each RenewEvery.
const renewalMoments = 4

// renewLoop sees to it that the lease is renewed until the tenure ends. Failures are
// retried after an ever shorter part of what is left until the fence, and on and on behind
// it, since a renewal may still resume the tenure.
func (h *Handle) renewLoop() {
	defer h.router.outage.over(h)
	var told renewalNews
	wait := h.untilRenewal()
	for {
		doubted, ok := h.awaitRenewal(wait)
		if !ok {
			return
		}
		if wait = h.untilRenewal(); wait > 0 && !doubted && !h.failing.Load() {
			continue // it was renewed meanwhile, together with others
		}
		began := h.now()
		err := h.renewOnce()
		switch {
		case h.ctx.Err() != nil:
			return
		case err == nil:
			h.renewedAt(began)
			h.failing.Store(false)
			h.router.outage.over(h)
			told = renewalNews{}
			wait = h.untilRenewal()
		case errors.Is(err, coord.CodeLeaseLost):
			h.lose()
			return
		default:
			h.failing.Store(true)
			if told.isNew(h.lease.Remaining() <= 0) {
				h.emit(Event{Kind: EventRenewFailed, Code: coord.CodeOf(err)})
			}
			h.router.outage.note(h, err)
			wait = h.retryAfter()
		}
	}
}

// renewedAt notes a renewal that was asked for at began.
func (h *Handle) renewedAt(began time.Duration) {
	h.renewed.Store(int64(began))
	h.emit(Event{Kind: EventRenewed, Took: h.now() - began})
}

// renewalNews is what was told of a row of renewals that failed.
type renewalNews struct{ failing, fenced bool }

// isNew reports whether a failure is the first of its row, or the first behind the fence.
func (n *renewalNews) isNew(fenced bool) bool {
	before := *n
	n.failing, n.fenced = true, n.fenced || fenced
	return *n != before
}

// untilRenewal is what is left of RenewEvery since the last one, or up to a quarter of it
// less: the renewals of a replica's tenants come at the same few moments, so that a lease
// store which can renews many at once. A tenant that is renewed together with others
// waits a while longer before it does so by itself.
func (h *Handle) untilRenewal() time.Duration {
	every := h.router.opts.RenewEvery
	due := (time.Duration(h.renewed.Load()) + every).Truncate(h.router.moment())
	if h.router.together.Load() && h.State() == StateServing {
		due += h.router.patience()
	}
	return due - h.router.opts.Clock.Now()
}

// patience is how long after RenewEvery a loop begins to renew what should have been
// renewed together with others. Half of what is left until the fence is left then, or more.
func (r *Router) patience() time.Duration {
	every := r.opts.RenewEvery
	return min(every, r.opts.LeaseTTL-r.opts.LeaseMargin-every) / 2
}

// moment is the time between the common moments of renewals.
func (r *Router) moment() time.Duration { return max(1, r.opts.RenewEvery/renewalMoments) }

// renewOnce bounds one renewal by half of what is left until the fence, so that a
// store that never answers leaves time for another attempt.
func (h *Handle) renewOnce() error {
	timeout := h.router.opts.RenewEvery
	if left := h.lease.Remaining(); left > 0 {
		timeout = max(minRenewTimeout, left/2)
	}
	ctx, cancel := coord.WithTimeout(h.ctx, h.router.opts.Clock, timeout)
	defer cancel()
	return h.lease.Renew(ctx)
}

// retryAfter goes by what is left until the fence, and behind it by the margin:
// for about that long the store still has the lease, and may yet renew it.
func (h *Handle) retryAfter() time.Duration {
	left := h.lease.Remaining()
	if left <= 0 {
		left = h.router.opts.LeaseMargin
	}
	return min(h.router.opts.RenewEvery, max(minRenewEvery, left/4))
}

// sleep returns false if the tenure ended first.
func (h *Handle) sleep(d time.Duration) bool {
	timer := h.router.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-h.ctx.Done():
		return false
	}
}

// awaitRenewal is sleep, cut short by a doubt about the lease.
func (h *Handle) awaitRenewal(d time.Duration) (doubted, ok bool) {
	timer := h.router.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return false, true
	case <-h.doubt:
		return true, true
	case <-h.ctx.Done():
		return false, false
	}
}

// lose ends the tenure because the store said that it is over.
func (h *Handle) lose() {
	ended, ok := h.end(h.lease.Ended(), StateOpening, StateServing, StateDraining, StateFlushing, StateForgetting)
	if !ok {
		return
	}
	h.emit(Event{Kind: EventLost})
	h.log().Warn("lease lost")
	if ended == StateOpening {
		return // the opening notices and takes the handle apart
	}
	// Not here: the renewal loop is one of the goroutines to be joined. Whoever
	// has to know that this one has ended waits for gone.
	go func() {
		h.dismantle()
		h.vacate()
	}()
}
