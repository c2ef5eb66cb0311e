package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// A CloseError names the tenants that [Router.Close] could not hand off cleanly.
type CloseError struct {
	Tenants []TenantError // in opening order
}

// A TenantError says why a tenant's handoff failed. With
// [coord.CodeLeaseStoreUnavailable] every write is in the final copy and only the
// lease could not be given back; with anything else, writes since the last
// committed copy are lost.
type TenantError struct {
	Key coord.Key
	Err error
}

// Error names the tenants with their reasons.
func (e *CloseError) Error() string {
	parts := make([]string, 0, len(e.Tenants))
	for _, t := range e.Tenants {
		parts = append(parts, fmt.Sprintf("%s: %v", t.Key, t.Err))
	}
	return fmt.Sprintf("%d tenants could not be handed off: %s", len(e.Tenants), strings.Join(parts, "; "))
}

// Unwrap returns the reasons.
func (e *CloseError) Unwrap() []error {
	all := make([]error, 0, len(e.Tenants))
	for _, t := range e.Tenants {
		all = append(all, t.Err)
	}
	return all
}

// Close refuses new opens with [coord.CodeRouterClosed], undoes those under way,
// hands every tenant off, several at a time, and ends everything the router
// started. Where a fence has passed it waits for a renewal that resumes the tenure,
// for up to one TTL. What cannot be handed off is abandoned at the end, so that no lease
// outlives the router; a [*CloseError] names those tenants. When ctx ends, what
// is still draining is abandoned at once, and final copies that are being made are waited for
// as long as they get on.
//
// A copy store that hangs, and does not even return when its context has ended, as a
// directory on a file system whose server is gone, cannot be waited for: ten seconds and
// one StoreTimeout after ctx has ended and the call's own time was over, the
// tenants that are left are named in the CloseError, with
// [coord.CodeCopyStoreUnavailable], their tenures end and their leases are given back. The
// goroutines that wait for such calls, with the files that they hold, remain until the calls
// return; so does the lease of an opening that hangs, which the router goes on renewing. End the
// process.
//
// Further calls wait for the first and return its result.
func (r *Router) Close(ctx context.Context) error {
	if r.closing.CompareAndSwap(false, true) {
		r.closeErr = r.close(ctx)
		close(r.closed)
	}
	<-r.closed
	return r.closeErr
}

func (r *Router) close(ctx context.Context) error {
	r.mu.Lock()
	r.mu.closed = true
	tenants := slices.Clone(r.mu.order)
	r.mu.Unlock()
	r.stopOpening()

	c, done := newClosing(r, tenants), make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	if !c.await(ctx, done) {
		c.leave(ctx)
	}
	r.events.close()
	r.awaitObserver()
	return c.result()
}

// closeTenant returns nil if every acknowledged write of the tenant is in a
// committed copy and its lease was given back, or if the tenant was not this
// replica's to hand off any more.
func (r *Router) closeTenant(ctx context.Context, t *tenant) error {
	<-t.opened // bounded: openings are being undone
	h := t.handle
	if h == nil {
		return nil
	}
	err := h.handOffAtLast(ctx)
	if err != nil {
		if abandoned := h.Abandon(ctx); errors.Is(abandoned, coord.CodeDraining) {
			r.opts.Logger.Error("a forget outlasted the closing", zap.Stringer("tenant", t.key))
			return err
		}
	}
	<-h.gone // whoever ended the tenure is clearing it away
	return err
}

// handOffAtLast waits for a handoff or a forget that somebody else began, no
// longer than a drain may take, and hands off what serves again after it. A fence that has
// passed is waited out for as long as a lease lasts: the renewals go on, and the one that
// resumes the tenure saves what no copy has yet.
func (h *Handle) handOffAtLast(ctx context.Context) error {
	timer := h.router.opts.Clock.NewTimer(h.router.opts.DrainTimeout)
	defer timer.Stop()
	var until time.Duration // when a fence that has passed is waited for no more
	for {
		changed := h.changes()
		err := h.Handoff(ctx)
		switch {
		case errors.Is(err, coord.CodeHandleClosed):
			return nil
		case errors.Is(err, coord.CodeFenced) && h.Err() == nil:
			if until == 0 {
				until = h.router.opts.Clock.Now() + h.router.opts.LeaseTTL
			}
			if !h.awaitFence(ctx, until) {
				return err
			}
			continue
		case !errors.Is(err, coord.CodeDraining):
			return err
		}
		select {
		case <-changed:
		case <-h.gone:
			return nil
		case <-ctx.Done():
			return err
		case <-timer.C():
			return err
		}
	}
}

// awaitFence returns true when the lease can be proved again, or the tenure has
// ended, and false when ctx ends or the time has come before.
func (h *Handle) awaitFence(ctx context.Context, until time.Duration) bool {
	for h.lease.Check() != nil {
		if ctx.Err() != nil || h.router.opts.Clock.Now() >= until {
			return false
		}
		if !h.sleep(minRenewEvery) {
			return true
		}
	}
	return true
}

// observerGrace bounds how long Close waits for an observer to take the last
// events.
const observerGrace = 2 * time.Second

func (r *Router) awaitObserver() {
	timer := r.opts.Clock.NewTimer(observerGrace)
	defer timer.Stop()
	select {
	case <-r.events.done:
	case <-timer.C():
		r.opts.Logger.Warn("the observer did not take the last events in time")
	}
}
