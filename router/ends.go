package router

import (
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// watchEnds hears of leases that have ended until the router closes.
func (r *Router) watchEnds(store coord.EndWatcher) {
	for {
		err := store.WatchEnds(r.opening, r.leaseEnded)
		if r.opening.Err() != nil {
			return
		}
		r.opts.Logger.Warn("a lease that ends early is noticed at its next renewal only", zap.Duration("retry_in", r.opts.LeaseTTL), zap.Error(err))
		if !r.pause(r.opening, r.opts.LeaseTTL) {
			return
		}
	}
}

// leaseEnded has the tenure renew at once. The renewal decides: what was heard is a hint.
func (r *Router) leaseEnded(key coord.Key, revision coord.Revision) {
	h := r.HandleOf(key)
	if h == nil || revision != 0 && revision != h.Revision() {
		return
	}
	select {
	case h.doubt <- struct{}{}:
	default:
	}
}
