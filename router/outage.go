package router

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// outageEvery is how often the log says that an outage goes on.
const outageEvery = 10 * time.Second

// An outage is the time in which some tenant's lease could not be renewed at its last
// attempt. A lease store that is gone fails thousands of tenants many times each: the log
// has one line when that begins, one from time to time and one when it is over, for all
// tenants together.
type outage struct {
	router *Router
	failed atomic.Int64 // attempts, since the router was made

	mu struct {
		sync.Mutex
		tenants  map[*Handle]struct{} // those that fail
		began    time.Duration        // on the router's clock, as is the next
		told     time.Duration
		attempts int // that failed since told
		most     int // tenants that failed at once
	}
}

func newOutage(r *Router) *outage {
	o := &outage{router: r}
	o.mu.tenants = make(map[*Handle]struct{})
	return o
}

// note is told of each renewal that failed.
func (o *outage) note(h *Handle, err error) {
	o.failed.Add(1)
	tenants, attempts, begins := o.count(h)
	switch {
	case begins:
		h.log().Warn("leases cannot be renewed; this tenant's is the first", zap.Duration("until_fence", h.lease.Remaining()), zap.Error(err))
	case attempts > 0:
		o.router.opts.Logger.Warn("leases still cannot be renewed", zap.Int("tenants", tenants), zap.Int("failed_attempts", attempts),
			zap.Stringer("for_example", h.key), zap.Duration("until_fence", h.lease.Remaining()), zap.Error(err))
	}
}

// count returns how many attempts have failed since the log told of them last, 0 if it is
// too soon to tell again.
func (o *outage) count(h *Handle) (tenants, attempts int, begins bool) {
	now := o.router.opts.Clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if begins = len(o.mu.tenants) == 0; begins {
		o.mu.began, o.mu.told, o.mu.attempts, o.mu.most = now, now, 0, 0
	}
	o.mu.tenants[h] = struct{}{}
	o.mu.attempts++
	tenants = len(o.mu.tenants)
	o.mu.most = max(o.mu.most, tenants)
	if now-o.mu.told >= outageEvery {
		attempts, o.mu.attempts, o.mu.told = o.mu.attempts, 0, now
	}
	return tenants, attempts, begins
}

// over is told when a renewal has succeeded, or no further one will be tried.
func (o *outage) over(h *Handle) {
	lasted, most, ends := o.leave(h)
	if ends {
		o.router.opts.Logger.Info("no renewal of a lease fails any more", zap.Duration("after", lasted), zap.Int("tenants", most))
	}
}

func (o *outage) leave(h *Handle) (lasted time.Duration, most int, ends bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, failing := o.mu.tenants[h]; !failing {
		return 0, 0, false
	}
	delete(o.mu.tenants, h)
	return o.router.opts.Clock.Now() - o.mu.began, o.mu.most, len(o.mu.tenants) == 0
}

// FailedRenewals returns how many attempts to renew a lease have failed since the router
// was made. [EventRenewFailed] does not tell of each.
func (r *Router) FailedRenewals() int64 { return r.outage.failed.Load() }

// watch keeps up a watch of the lease store until the router closes. The log hears when it
// breaks off, but not again of each attempt that fails to take it up.
func (r *Router) watch(missed string, watch func() error) {
	for failing := false; ; failing = true {
		began := r.opts.Clock.Now()
		err := watch()
		if r.opening.Err() != nil {
			return
		}
		if !failing || r.opts.Clock.Now()-began > r.opts.LeaseTTL {
			r.opts.Logger.Warn(missed, zap.Duration("retry_every", r.opts.LeaseTTL), zap.Error(err))
		}
		if !r.pause(r.opening, r.opts.LeaseTTL) {
			return
		}
	}
}
