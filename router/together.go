package router

import (
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// renewTogether renews at each of the common moments, with one call, the leases that are
// due then, until the router closes. It spares thousands of tenants the waking of a
// goroutine each. It decides nothing: a renewal that fails here is at once tried again by
// the tenant's own loop, and so is one that does not come in time, for instance because
// the store is slow about another tenant's.
func (r *Router) renewTogether(store coord.BatchRenewer) {
	defer r.together.Store(false)
	moment := r.moment()
	for {
		now := r.opts.Clock.Now()
		if !r.pause(r.opening, (now+moment).Truncate(moment)-now) {
			return
		}
		r.renewDue(store)
	}
}

// renewDue leaves a store that never answers no more time than until the loops begin to
// ask it themselves.
func (r *Router) renewDue(store coord.BatchRenewer) {
	began := r.opts.Clock.Now()
	handles := r.due(began)
	if len(handles) == 0 {
		return
	}
	leases := make([]*fencing.Lease, len(handles))
	for i, h := range handles {
		leases[i] = h.lease
	}
	ctx, cancel := coord.WithTimeout(r.opening, r.opts.Clock, r.patience())
	defer cancel()
	for i, err := range fencing.Extend(ctx, store, leases) {
		if err == nil {
			handles[i].renewedAt(began)
		} else if r.opening.Err() == nil {
			handles[i].renewNow()
		}
	}
}

// due returns the tenants whose last renewal is so long ago that the next moment would be
// too late. Those whose renewals fail are left to their loops.
func (r *Router) due(now time.Duration) []*Handle {
	moment := r.moment()
	var due []*Handle
	for _, h := range r.Handles() {
		since := now/moment - time.Duration(h.renewed.Load())/moment
		if since >= renewalMoments && !h.failing.Load() && h.lease.Ended() == nil {
			due = append(due, h)
		}
	}
	return due
}
