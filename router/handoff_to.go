package router

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// HandoffTo is a [Handle.Handoff] to a successor that was told before, so that work
// pauses as shortly as may be. While the tenant still serves, a copy is committed, and
// then ready is called: it should tell the successor, which fetches that copy (see
// [Router.Prewarm]) and waits (see [Router.OpenWait]), and return once it does. Only
// what changed since is copied in the pause; at present that is a whole image if
// anything changed, and nothing if nothing did.
//
// If the copy or ready fails, its error is returned and nothing has changed. Further
// errors are Handoff's. While a HandoffTo is under way another one fails with
// [coord.CodeDraining], and requests of other replicas are not honoured. A successor
// that does not open the tenant after all delays others by no more than a second.
func (h *Handle) HandoffTo(ctx context.Context, ready func(ctx context.Context) error) error {
	if !h.moving.CompareAndSwap(false, true) {
		return &coord.Error{Code: coord.CodeDraining, Key: h.key, Detail: "the tenant is being handed to another replica already"}
	}
	defer func() {
		// The successor's request stands a moment longer, and is not one of its own.
		h.settled.Store(int64(h.router.opts.Clock.Now()))
		h.moving.Store(false)
	}()
	if err := h.enter(); err != nil {
		return err
	}
	_, err := h.publish(ctx, ifChanged)
	h.leave()
	if err != nil {
		return err
	}
	if err := ready(ctx); err != nil {
		return err
	}
	h.router.note(h.key) // its request may not have been heard here yet
	return h.Handoff(ctx)
}

// Prewarm fetches and verifies the newest copy of a tenant that another replica owns,
// so that an opening here has nothing to download if the lineage then leads to this
// very copy. It touches no lease and no ledger, and takes the room of one until discard
// is called or an opening has used it up. It returns the copy, or nil if the tenant has
// none.
//
// Errors are those of a restore, and [coord.CodeAtCapacity]. A tenant that this replica has needs no warming and is
// refused with [coord.CodeLeaseHeld].
func (r *Router) Prewarm(ctx context.Context, key coord.Key) (newest *copystore.Ref, discard func(), _ error) {
	record, known, err := r.record(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	if known && record.Held && record.Owner == r.opts.ReplicaID {
		return nil, nil, &coord.LeaseHeldError{Record: record}
	}
	r.mu.Lock()
	full := r.fullLocked()
	r.mu.Unlock()
	if full {
		return nil, nil, r.atCapacity(key) // better now than when the owner has let go
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.opening, cancel)()
	warm, err := r.copies.Warm(ctx, key, record.ForgottenAt, r.TenantRoot(key), copystore.ExtractRequest{
		Verify: func(ctx context.Context, path string) (int64, error) { return r.opts.verify(ctx, path, key) },
	})
	switch {
	case errors.Is(err, coord.CodeTenantUnknown):
		return nil, func() {}, nil
	case r.opening.Err() != nil:
		return nil, nil, errors.Join(&coord.Error{Code: coord.CodeRouterClosed, Key: key, Err: err}, warm.Discard())
	case err != nil:
		return nil, nil, err
	}
	r.keepWarm(key, warm)
	ref := warm.Ref()
	return &ref, func() { r.cool(key, warm) }, nil
}

// keepWarm replaces what was warm before.
func (r *Router) keepWarm(key coord.Key, warm *copystore.Warm) {
	r.mu.Lock()
	former := r.mu.warm[key]
	r.mu.warm[key] = warm
	r.mu.Unlock()
	r.discard(former)
}

// takeWarm returns the tenant's warm copy, for one opening; nil if there is none.
func (r *Router) takeWarm(key coord.Key) *copystore.Warm {
	r.mu.Lock()
	defer r.mu.Unlock()
	warm := r.mu.warm[key]
	delete(r.mu.warm, key)
	return warm
}

// cool discards warm unless an opening has taken it, which discards it by itself.
func (r *Router) cool(key coord.Key, warm *copystore.Warm) {
	r.mu.Lock()
	mine := r.mu.warm[key] == warm
	if mine {
		delete(r.mu.warm, key)
	}
	r.mu.Unlock()
	if mine {
		r.discard(warm)
	}
}

func (r *Router) discard(warm *copystore.Warm) {
	if err := warm.Discard(); err != nil {
		r.opts.Logger.Warn("a warm copy could not be removed and goes with the next opening", zap.Error(err))
	}
}
