package router

import (
	"errors"
	"math"
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
	for h.awaitRenewal(wait) {
		doubted := h.doubted.Swap(false)
		if wait = h.untilRenewal(); wait > 0 && !doubted && !h.failing.Load() {
			continue // it was renewed meanwhile, together with others
		}
		began := h.now()
		err := h.renewOnce()
		switch {
		case h.ctx.Err() != nil:
			return
		case err == nil:
			h.isRenewed(began)
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

// isRenewed notes a renewal that was asked for at began.
func (h *Handle) isRenewed(began time.Duration) {
	now := h.now()
	h.renewed.Store(int64(now))
	h.emit(Event{Kind: EventRenewed, Took: now - began})
}

// renewalNews is what was told of a row of renewals that failed.
type renewalNews struct{ failing, fenced bool }

// isNew reports whether a failure is the first of its row, or the first behind the fence.
func (n *renewalNews) isNew(fenced bool) bool {
	before := *n
	n.failing, n.fenced = true, n.fenced || fenced
	return *n != before
}

// untilCalled is longer than any wait: the loop sleeps until somebody calls it.
const untilCalled time.Duration = math.MaxInt64

// untilRenewal is what is left of RenewEvery since the last one, or up to a quarter of it
// less: the renewals of a replica's tenants come at the same few moments, so that a lease
// store which can renews many at once. A tenant that is renewed together with others
// waits for that, and a while longer, before it does so by itself.
func (h *Handle) untilRenewal() time.Duration {
	if h.router.together.Load() && h.minded.Load() && !h.isLate(0) {
		return untilCalled
	}
	return h.renewalDue() - h.router.opts.Clock.Now()
}

func (h *Handle) renewalDue() time.Duration {
	return (time.Duration(h.renewed.Load()) + h.router.opts.RenewEvery).Truncate(h.router.moment())
}

// isLate reports whether a renewal that should come together with others will, within a
// time from now, be so late that the loop has to see to it.
func (h *Handle) isLate(within time.Duration) bool {
	opts := h.router.opts
	return h.lease.Remaining()-within <= opts.LeaseTTL-opts.LeaseMargin-opts.RenewEvery-h.router.patience()
}

// patience is how long after RenewEvery a loop begins to renew what should have been
// renewed together with others: half of what there is until the fence, or less.
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

// awaitRenewal is sleep, cut short by a call.
func (h *Handle) awaitRenewal(d time.Duration) bool {
	var due <-chan time.Time
	if d < untilCalled {
		timer := h.router.opts.Clock.NewTimer(d)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-due:
		return true
	case <-h.called:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// call has the renewal loop look if there is something to do.
func (h *Handle) call() {
	select {
	case h.called <- struct{}{}:
	default:
	}
}

// doubt has it renew at once, whenever the last renewal was.
func (h *Handle) doubt() {
	h.doubted.Store(true)
	h.call()
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
