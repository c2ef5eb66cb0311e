package router

import (
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// minLook keeps options that leave no room between a renewal and the fence from busying
// the replica.
const minLook = time.Millisecond

// renewTogether renews at each of the common moments, with one request, the leases that
// are due then, until the router closes. It spares thousands of tenants the waking of a
// goroutine each. It decides nothing: what fails here is at once tried again by the
// tenant's own loop, and so is what does not come in time, for instance because the store
// is slow about another tenant's.
func (r *Router) renewTogether(store coord.BatchRenewer) {
	defer r.renewApart()
	every := max(minLook, min(r.moment(), r.patience()))
	underWay := make(chan struct{}, 1)
	for {
		now := r.opts.Clock.Now()
		if !r.pause(r.opening, (now+every).Truncate(every)-now) {
			return
		}
		handles := r.Handles()
		for _, h := range handles {
			h.minded.Store(true)
			if h.isLate(every) && !h.failing.Load() {
				h.doubt()
			}
		}
		select {
		case underWay <- struct{}{}:
			r.background.Go(func() {
				defer func() { <-underWay }()
				r.renewDue(store, handles)
			})
		default: // the store is slow; the loops see to what becomes late
		}
	}
}

// renewApart leaves the renewals to the loops.
func (r *Router) renewApart() {
	r.together.Store(false)
	for _, h := range r.Handles() {
		h.call()
	}
}

// renewDue leaves a store that never answers no more time than until the loops begin to
// ask it themselves.
func (r *Router) renewDue(store coord.BatchRenewer, handles []*Handle) {
	began := r.opts.Clock.Now()
	var due []*Handle
	var leases []*fencing.Lease
	for _, h := range handles {
		if h.renewalDue() <= began && !h.failing.Load() && h.lease.Ended() == nil {
			due, leases = append(due, h), append(leases, h.lease)
		}
	}
	if len(due) == 0 {
		return
	}
	ctx, cancel := coord.WithTimeout(r.opening, r.opts.Clock, r.patience())
	defer cancel()
	for i, err := range fencing.Extend(ctx, store, leases) {
		if err == nil {
			due[i].isRenewed(began)
		} else if r.opening.Err() == nil {
			due[i].doubt()
		}
	}
}
