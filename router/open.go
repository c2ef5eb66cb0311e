package router

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/ledger"
)

// ledgerFile is the local ledger in a tenant's directory.
const ledgerFile = "ledger.db"

// open settles t. It runs on a goroutine of its own.
func (r *Router) open(t *tenant) {
	defer close(t.opened)
	h, err := r.acquire(t.key)
	if err == nil {
		err = h.bringUp(r.opening)
	}
	if err != nil {
		t.err = err
		r.vacate(t.key)
		return
	}
	t.handle = h
}

// acquire touches no file: a tenant that somebody else owns is not ours to touch.
func (r *Router) acquire(key coord.Key) (*Handle, error) {
	ctx, cancel := coord.WithTimeout(r.opening, r.opts.Clock, r.opts.StoreTimeout)
	defer cancel()
	lease, err := fencing.Acquire(ctx, r.opts.Leases, key, r.opts.ReplicaID, r.opts.lease())
	if err != nil {
		if r.opening.Err() != nil {
			return nil, &coord.Error{Code: coord.CodeRouterClosed, Key: key, Err: err}
		}
		return nil, err
	}
	h := &Handle{router: r, key: key, lease: lease, gate: &viewGate{lease: lease}, gone: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.mu.changed = make(chan struct{})
	h.copies = newCopies(h)
	return h, nil
}

// bringUp takes a granted tenant to serving, or undoes the grant. The lease is
// renewed meanwhile: a restore may take longer than a TTL.
func (h *Handle) bringUp(opening context.Context) error {
	h.emit(Event{Kind: EventAcquired})
	h.loops.Go(h.renewLoop)
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	defer context.AfterFunc(opening, cancel)()

	err := h.prepare(ctx)
	if err == nil {
		err = h.beginServing()
	}
	if err != nil {
		return h.undo(opening, err)
	}
	h.loops.Go(h.copies.sweep)
	if h.router.opts.SnapshotEvery > 0 {
		h.loops.Go(h.copyLoop)
	}
	if h.router.opts.DrillEvery > 0 {
		h.loops.Go(h.drillLoop)
	}
	return nil
}

// prepare puts the ledger in place and claims the epoch. The order is that of the
// protocol: what the lineage holds is read first, then the claim makes it final,
// then the lease is proved, which no superseded owner can do after a successor
// read the lineage, and only then is anything served.
func (h *Handle) prepare(ctx context.Context) error {
	path := filepath.Join(h.router.TenantRoot(h.key), ledgerFile)
	restored, err := h.copies.restore(ctx, path)
	if err != nil {
		return err
	}
	from := restored.From()
	schema, migrated := h.router.opts.Schema, false
	if from == nil {
		err = schema.Create(ctx, path, h.key)
	} else {
		migrated, err = schema.Migrate(ctx, path, h.key)
	}
	if err != nil {
		return err
	}
	if err := h.copies.claim(ctx, from); err != nil {
		return err
	}
	if err := h.lease.Check(); err != nil {
		return err
	}
	db, err := fencing.OpenDatabase(ctx, path, h.gate, &fencing.DatabaseOptions{Protected: schema.Protected(), MaxValue: h.router.opts.MaxValue})
	if err != nil {
		return err
	}
	h.db, h.ledger, h.restored = db, ledger.New(db.DB(), h.key), from
	h.copies.covered.Store(db.Commits())
	if migrated {
		h.copies.covered.Store(uncovered)
	}
	if from != nil {
		h.copies.proof.record(h.router.opts.Clock.Now())
	}
	h.emit(Event{Kind: EventRestored, From: from, Skipped: restored.Skipped})
	return nil
}

// undo gives a tenant back that could not be brought up, and says why, preferring
// the cause that a caller can act on: the lease is gone, the router is closing.
func (h *Handle) undo(opening context.Context, err error) error {
	if h.lease.Ended() != nil {
		h.lose()
	}
	h.end(closedBecause(h.key, "not opened"), StateOpening)
	h.dismantle()
	switch {
	case h.lease.Ended() != nil:
		err = &coord.Error{Code: coord.CodeLeaseLost, Op: "open", Key: h.key, Err: err}
	case opening.Err() != nil:
		err = &coord.Error{Code: coord.CodeRouterClosed, Key: h.key, Err: err}
	}
	if !errors.Is(err, coord.CodeLeaseLost) {
		released := h.release(context.Background())
		h.emit(Event{Kind: EventReleased, Code: coord.CodeOf(released)})
	}
	close(h.gone)
	return err
}
