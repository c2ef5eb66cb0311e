package router

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// ledgerFile is the local ledger in a tenant's directory.
const ledgerFile = "ledger.db"

// open settles t. It runs on a goroutine of its own.
func (r *Router) open(t *tenant) {
	defer close(t.opened)
	h, err := r.acquire(t.key, t.waited)
	if err == nil {
		err = h.bringUp(r.opening)
	}
	if err != nil {
		t.err = exhausted(t.key, err)
		r.vacate(t.key)
		return
	}
	t.handle = h
}

// exhausted gives an opening that failed for want of file descriptors its code,
// whichever of the many files and connections it was.
func exhausted(key coord.Key, err error) error {
	if !fencing.Exhausted(err) || errors.Is(err, coord.CodeResourcesExhausted) {
		return err
	}
	return &coord.Error{
		Code: coord.CodeResourcesExhausted, Op: "open", Key: key, Err: err,
		Hint: "raise the limit of open files, or let the replica hold fewer tenants in use at once",
	}
}

// acquire touches no file: a tenant that somebody else owns is not ours to touch.
func (r *Router) acquire(key coord.Key, waited bool) (*Handle, error) {
	if !waited {
		if err := r.yield(r.opening, key); err != nil {
			return nil, err
		}
	}
	ctx, cancel := coord.WithTimeout(r.opening, r.opts.Clock, r.opts.StoreTimeout)
	defer cancel()
	lease, err := fencing.Acquire(ctx, r.opts.Leases, key, r.opts.ReplicaID, r.opts.lease())
	if err != nil {
		if r.opening.Err() != nil {
			return nil, &coord.Error{Code: coord.CodeRouterClosed, Key: key, Err: err}
		}
		return nil, err
	}
	h := &Handle{router: r, key: key, lease: lease, gate: &viewGate{lease: lease}, gone: make(chan struct{}), called: make(chan struct{}, 1)}
	now := r.opts.Clock.Now()
	h.renewed.Store(int64(now))
	h.settled.Store(int64(now))
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
	h.loops.Go(h.upkeep)
	return nil
}

// prepare puts the ledger in place and claims the epoch. The order is that of the
// protocol: what the lineage holds is read first, then the claim makes it final,
// then the lease is proved, which no superseded owner can do after a successor
// read the lineage, and only then is anything served.
func (h *Handle) prepare(ctx context.Context) error {
	began := h.now()
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
	db, err := fencing.OpenDatabase(ctx, path, h.gate, &fencing.DatabaseOptions{
		Protected: schema.Protected(), MaxValue: h.router.opts.MaxValue, IdleTime: h.router.opts.IdleClose / 2,
	})
	if err != nil {
		return err
	}
	h.db, h.restored = db, from
	h.copies.covered.Store(db.Commits())
	if migrated {
		h.copies.covered.Store(uncovered)
	}
	if from != nil {
		h.copies.proof.record(h.now())
	}
	h.copies.level.reached(h.now())
	h.emit(Event{Kind: EventRestored, From: from, Skipped: restored.Skipped, Took: h.now() - began})
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
	default:
		err = noRoom(h.key, err)
	}
	if !errors.Is(err, coord.CodeLeaseLost) {
		released := h.release(context.Background())
		h.emit(Event{Kind: EventReleased, Code: coord.CodeOf(released)})
	}
	close(h.gone)
	return err
}

// noRoom gives a failure for want of room on this replica's disk its code: somebody
// must act, and another replica may have room.
func noRoom(key coord.Key, err error) error {
	if coord.CodeOf(err) == "" && errors.Is(err, syscall.ENOSPC) {
		return &coord.Error{Code: coord.CodeLedgerFull, Key: key, Err: err, Hint: "free space on the disk"}
	}
	return err
}
