package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// OpenWait is [Router.Open] for a replica that wants the tenant whoever owns it: it
// asks the owner to hand it off, waits, is woken by the lease store the moment the
// tenant is released or its lease has ended, and opens it. What it returns is always a
// tenure that was granted after the wait. If another replica was faster it goes on
// waiting. The request stands no longer than the call, and ends with this process.
//
// The owner honours a request once its tenure is [Options.MinTenure] old, so that two
// replicas that both want a tenant do not pass it to and fro. An owner whose lease
// store is no [coord.WantStore], or that was told to keep what it has, does not; then
// the wait is for a release of its own accord, or for its end.
//
// It fails as Open does, except that it waits where Open says [coord.LeaseHeldError] or
// [coord.CodeDraining], tries again where the new lease was lost, or could not be proved,
// before the tenant served or the lease store cannot be reached, and returns ctx's error when ctx ends. A
// lease store that is no [coord.ReleaseWaiter], or that needs to know the asker first
// and does not, is [coord.CodeOptionsInvalid].
func (r *Router) OpenWait(ctx context.Context, key coord.Key) (*Handle, error) {
	waiter, ok := r.opts.Leases.(coord.ReleaseWaiter)
	if !ok {
		return nil, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "open", Key: key, Detail: "the lease store cannot wait for a release"}
	}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.opening, cancel)()
	asked := &request{router: r, key: key}
	defer asked.end()
	for {
		h, err := r.openAs(ctx, key, waiting)
		if err == nil || ctx.Err() == nil && !worthWaiting(err) {
			return h, err
		}
		if ctx.Err() == nil {
			err = r.waitFor(ctx, waiter, asked, err)
		}
		switch {
		case caller.Err() != nil:
			return nil, fmt.Errorf("wait for %s: %w", key, caller.Err())
		case r.opening.Err() != nil:
			return nil, &coord.Error{Code: coord.CodeRouterClosed, Key: key, Err: err}
		case err != nil:
			return nil, err
		}
	}
}

func worthWaiting(err error) bool {
	return errors.Is(err, coord.CodeLeaseHeld) || errors.Is(err, coord.CodeDraining) ||
		errors.Is(err, coord.CodeLeaseLost) || errors.Is(err, coord.CodeFenced) || errors.Is(err, coord.CodeLeaseStoreUnavailable)
}

// waitFor returns when there may be a tenant to open, after an opening failed with
// why.
func (r *Router) waitFor(ctx context.Context, waiter coord.ReleaseWaiter, asked *request, why error) error {
	held := (*coord.LeaseHeldError)(nil)
	switch {
	case errors.As(why, &held):
		if err := asked.renew(ctx, held.Record.Epoch); err != nil {
			return err
		}
		// Not for ever: what was released may have been taken before this was looked at,
		// and the new owner has not been asked.
		ctx, cancel := coord.WithTimeout(ctx, r.opts.Clock, r.opts.LeaseTTL)
		defer cancel()
		if err := waiter.WaitReleased(ctx, asked.key); ctx.Err() == nil {
			return err
		}
		return nil
	case errors.Is(why, coord.CodeDraining):
		if h := r.HandleOf(asked.key); h != nil {
			return h.AwaitSettled(ctx)
		}
		return nil
	default:
		r.pause(ctx, r.opts.RenewEvery)
		return nil
	}
}

// AwaitSettled returns when the tenant serves or nothing of the handle is left: when
// a handoff or a forget that made it refuse work has come to an end, either way. It
// returns ctx's error if ctx ends first.
func (h *Handle) AwaitSettled(ctx context.Context) error {
	for {
		changed := h.changes()
		if h.State() == StateServing {
			return nil
		}
		select {
		case <-changed:
		case <-h.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
