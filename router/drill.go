package router

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// A proof is when a copy of the tenant was last restored, in this tenure.
type proof struct{ at atomic.Pointer[time.Duration] }

func (p *proof) record(now time.Duration) { p.at.Store(&now) }

// Proved returns how long ago the newest copy of the tenant was proved restorable:
// by the restore that opened the tenant, or by a drill. It is false if none was in
// this tenure, which is so while the tenant is new and nothing was proved yet.
func (h *Handle) Proved() (age time.Duration, ok bool) {
	at := h.copies.proof.at.Load()
	if at == nil {
		return 0, false
	}
	return h.now() - *at, true
}

// startDrill proves the newest copy restorable, beside the upkeep, which has to go on
// meanwhile. Drills of all tenants take turns.
func (h *Handle) startDrill() {
	if _, ok := h.copies.newest(); !ok || h.drilling.Swap(true) {
		return
	}
	h.loops.Go(func() {
		defer h.drilling.Store(false)
		select {
		case h.router.drill <- struct{}{}:
		case <-h.ctx.Done():
			return
		}
		h.prove(h.ctx)
		<-h.router.drill
	})
}

// newest returns the newest copy that this tenure knows: its own, or the one that
// it restored.
func (c *copies) newest() (copystore.Ref, bool) {
	if last, ok := c.publisher.Last(); ok {
		return last.Ref(), true
	}
	if c.h.restored != nil {
		return *c.h.restored, true
	}
	return copystore.Ref{}, false
}

// prove restores the newest copy to a file beside the ledger and removes it. A copy
// that cannot be trusted is reported, and replaced: the ledger no longer counts
// as copied, so the next copy, or the final one, is made in any case.
func (h *Handle) prove(ctx context.Context) {
	ref, ok := h.copies.newest()
	if !ok {
		return
	}
	defer h.copies.publisher.Hold(ref)()
	_, err := h.router.copies.Verify(ctx, h.key, ref, h.router.TenantRoot(h.key), copystore.ExtractRequest{
		Verify: func(ctx context.Context, path string) (int64, error) {
			return h.router.opts.verify(ctx, path, h.key)
		},
	})
	if err == nil {
		h.copies.proof.record(h.now())
		h.emit(Event{Kind: EventProved, From: &ref})
		return
	}
	if ctx.Err() != nil {
		return // the tenure ended
	}
	if newest, _ := h.copies.newest(); errors.Is(err, coord.CodeRestoreInvalid) && newest == ref {
		h.copies.covered.Store(uncovered)
	}
	err = noRoom(h.key, err)
	h.emit(Event{Kind: EventProofFailed, From: &ref, Code: coord.CodeOf(err)})
	h.log().Error("the newest copy could not be proved restorable", zap.Error(err))
}
