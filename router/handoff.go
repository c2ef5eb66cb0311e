package router

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

func closedBecause(key coord.Key, how string) error {
	return &coord.Error{Code: coord.CodeHandleClosed, Key: key, Detail: "the tenant was " + how + " on this replica"}
}

// Handoff gives the tenant up without losing anything: it waits for running work,
// makes the final copy and releases the lease, so that the next owner starts at
// once with every acknowledged write.
//
//   - [coord.CodeDraining]: a handoff or a forget is under way already.
//   - [*coord.DrainTimeoutError]: running work outlasted the drain timeout; the
//     tenant serves again. So it does when ctx ends during the drain; later ctx is
//     no longer heeded.
//   - An error of the copy store, or [coord.CodeFenced] because the fence passed
//     locally: the final copy is not committed, the lease is kept and the tenant
//     serves again.
//   - [coord.CodeLedgerGone], [coord.CodeLedgerDamaged]: there is nothing to copy; the
//     tenure ends as if abandoned.
//   - The reason of [Handle.Err] if the tenure ended in another way meanwhile.
//   - [coord.CodeLeaseStoreUnavailable]: the final copy is committed and the
//     tenure is over, but the store could not be told; the next owner waits for
//     the lease to expire.
func (h *Handle) Handoff(ctx context.Context) error {
	if err := h.beginDrain(); err != nil {
		return err
	}
	began := h.now()
	if err := h.awaitIdle(ctx, StateDraining); err != nil {
		return h.handoffFailed(StateDraining, err)
	}
	if err := h.beginFlush(); err != nil {
		return err
	}
	if _, err := h.publish(h.ctx, ifChanged); err != nil && !safeguards.Off(safeguards.ReleaseAfterFlush) {
		return h.handoffFailed(StateFlushing, err)
	}
	h.flushed.Store(true)
	if _, ok := h.end(closedBecause(h.key, "handed off"), StateFlushing); !ok {
		return h.Err()
	}
	h.dismantle()
	err := h.release(ctx)
	h.emit(Event{Kind: EventReleased, Flushed: true, Took: h.now() - began, Code: coord.CodeOf(err)})
	removeLedger := h.retireLedger()
	h.vacate()
	// At last, so that neither the next owner nor who is parked here waits for it: the
	// local ledger is in the final copy, and what else is removed is older than a copy that
	// was committed while the lease was held.
	removeLedger()
	h.copies.retain(context.WithoutCancel(ctx))
	return err
}

// retireLedger takes the local ledger, which nobody will ever read again, out of the way
// of the next opening here.
func (h *Handle) retireLedger() (remove func()) {
	complain := func(err error) {
		if err != nil {
			h.log().Warn("the local ledger stays until the tenant is opened here again", zap.Error(err))
		}
	}
	remover, err := copystore.Retire(h.db.Path())
	if err != nil {
		complain(err)
		return func() {}
	}
	return func() { complain(remover()) }
}

// handoffFailed is the one place that decides between serving again and lost.
func (h *Handle) handoffFailed(during State, err error) error {
	if h.lease.Ended() != nil {
		h.lose()
		return h.Err()
	}
	if ended := h.resume(during); ended != nil {
		return ended
	}
	if timeout := (*coord.DrainTimeoutError)(nil); errors.As(err, &timeout) {
		h.emit(Event{Kind: EventDrainTimeout, InFlight: timeout.InFlight})
	}
	if !h.endIfUseless(err) {
		h.log().Warn("the tenant could not be handed off and serves again", zap.Error(err))
	}
	return err
}

// Abandon gives the tenant up at once, without a final copy: writes since the last
// committed copy are lost, though they were acknowledged. It is for a replica that
// must stop, or a tenant whose copies cannot be written. A forget under way
// wins: Abandon then fails with [coord.CodeDraining].
//
// An error of the lease store means that the next owner waits for the lease to
// expire; the tenure is over all the same.
func (h *Handle) Abandon(ctx context.Context) error {
	if safeguards.Off(safeguards.StopBeforeRelease) {
		_ = h.release(ctx)
	}
	if _, ok := h.end(closedBecause(h.key, "abandoned"), StateServing, StateDraining, StateFlushing); !ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.refusalLocked()
	}
	return h.letGo(ctx)
}

// letGo does what is left to do of a tenure that ended without a final copy.
func (h *Handle) letGo(ctx context.Context) error {
	err := h.release(ctx)
	h.dismantle()
	h.emit(Event{Kind: EventReleased, Code: coord.CodeOf(err)})
	h.vacate()
	return err
}

// Forgotten reports what a forget did.
type Forgotten struct {
	DeletedObjects int         // objects removed from the copy store
	Floor          coord.Epoch // copies of this epoch and older ones are dead for ever
}

// Forget deletes the tenant for good: it waits for running work, raises the
// forgotten floor in the lease store, deletes every object and local file of the
// tenant and hands the lease back. Once the floor is raised no copy can ever
// bring the tenant back, whoever uploads it.
//
// A drain that times out leaves the tenant serving. Any later failure ends the
// tenure and names what is left; [Router.Forget] may be repeated until it
// succeeds.
func (h *Handle) Forget(ctx context.Context) (Forgotten, error) {
	if err := h.beginForget(); err != nil {
		return Forgotten{}, err
	}
	if err := h.awaitIdle(ctx, StateForgetting); err != nil {
		return Forgotten{}, h.handoffFailed(StateForgetting, err)
	}
	if err := h.closeView(); err != nil {
		return Forgotten{}, err
	}
	h.copies.stop()
	done, err := h.forgetDurably()
	if _, ok := h.end(closedBecause(h.key, "forgotten"), StateForgetting); !ok {
		return done, errors.Join(h.Err(), err)
	}
	h.dismantle()
	if err == nil {
		err = os.RemoveAll(h.router.TenantRoot(h.key))
	}
	released := h.release(ctx)
	h.emit(Event{Kind: EventReleased, Code: coord.CodeOf(released)})
	h.vacate()
	return done, errors.Join(err, released)
}

// forgetDurably runs under the tenure's context, not the caller's: half a forget
// helps nobody. After any error the tenure must end, also after an unclear one:
// if the floor was raised, nothing written under this epoch would survive.
func (h *Handle) forgetDurably() (done Forgotten, err error) {
	ctx, cancel := coord.WithTimeout(h.ctx, h.router.opts.Clock, h.router.opts.StoreTimeout)
	defer cancel()
	if done.Floor, err = h.lease.Forget(ctx); err != nil {
		if errors.Is(err, coord.CodeLeaseLost) {
			h.lose()
		}
		return done, err
	}
	done.DeletedObjects, err = h.copies.forget(h.ctx, done.Floor)
	return done, err
}

// release tells the store, bounded, whatever has become of the caller.
func (h *Handle) release(ctx context.Context) error {
	ctx, cancel := coord.WithTimeout(context.WithoutCancel(ctx), h.router.opts.Clock, h.router.opts.StoreTimeout)
	defer cancel()
	err := h.lease.Release(ctx)
	if err != nil {
		h.log().Warn("the lease could not be released and will expire by itself", zap.Error(err))
	}
	return err
}

// dismantle stops and joins everything that works for the handle and closes its
// database. The handle has ended before.
func (h *Handle) dismantle() {
	h.cancel()
	h.loops.Wait()
	h.copies.stop()
	if h.db != nil {
		if err := h.db.Close(); err != nil {
			h.log().Warn("the local ledger did not close cleanly", zap.Error(err))
		}
	}
}

// vacate ends the handle: nothing of it is left, and the tenant may be opened here again.
func (h *Handle) vacate() {
	h.router.vacate(h.key)
	close(h.gone)
}
