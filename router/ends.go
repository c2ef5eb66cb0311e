package router

import "github.com/leaseholddb/leasehold/coord"

// watchEnds hears of leases that have ended until the router closes.
func (r *Router) watchEnds(store coord.EndWatcher) {
	r.watch("a lease that ends early is noticed at its next renewal only", func() error {
		return store.WatchEnds(r.opening, r.leaseEnded)
	})
}

// leaseEnded has the tenure renew at once. The renewal decides: what was heard is a hint.
func (r *Router) leaseEnded(key coord.Key, revision coord.Revision) {
	h := r.HandleOf(key)
	if h == nil || revision != 0 && revision != h.Revision() {
		return
	}
	h.doubt()
}
