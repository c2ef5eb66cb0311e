package router

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/internal/safeguards"
	"github.com/leaseholddb/leasehold/ledger"
)

// A Handle is one tenure of one tenant on this replica, from [Router.Open] until
// it is handed off, abandoned, forgotten or lost. A handle that has ended never
// works again; open the tenant anew. All methods are safe for concurrent use.
type Handle struct {
	router *Router
	key    coord.Key
	lease  *fencing.Lease
	gate   *viewGate
	copies *copies

	// Set while opening, read-only afterwards.
	db       *fencing.Database
	restored *copystore.Ref

	// ctx ends with the tenure; the background work and copies run under it.
	ctx    context.Context
	cancel context.CancelFunc
	loops  sync.WaitGroup
	gone   chan struct{} // closed when nothing of the handle is left
	called chan struct{} // has a value when the renewal loop should look for itself

	renewed atomic.Int64 // when the latest grant or renewal was answered, on the replica's clock
	minded  atomic.Bool  // renewTogether knows the tenant, and calls the loop if it stops
	doubted atomic.Bool  // the lease is said to have ended, or a renewal together with others failed
	failing atomic.Bool  // the latest renewal failed, and the loop tries by itself

	settled atomic.Int64 // when the lease was granted or a HandoffTo last failed, on the replica's clock
	moving  atomic.Bool  // a HandoffTo is under way
	flushed atomic.Bool  // a committed copy holds all that was ever acknowledged

	drilling   atomic.Bool   // a drill is under way, or waits for its turn
	resting    bool          // the database is at rest; for upkeep alone, as is the next
	restsSince time.Duration // on the router's clock

	mu struct {
		sync.Mutex
		state    State
		inFlight int
		ended    error         // why the state is StateClosed
		changed  chan struct{} // closed and replaced when state changes or a drain goes idle
	}
}

// Key returns the tenant's key.
func (h *Handle) Key() coord.Key { return h.key }

// Epoch returns the epoch of this tenure.
func (h *Handle) Epoch() coord.Epoch { return h.lease.Tenure().Epoch }

// Revision returns the fencing token of this tenure across the lease store.
func (h *Handle) Revision() coord.Revision { return h.lease.Grant().Revision }

// RestoredFrom returns the copy that the ledger was restored from, nil if it was
// created new.
func (h *Handle) RestoredFrom() *copystore.Ref { return h.restored }

// State returns where the tenant stands at this moment.
func (h *Handle) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.state
}

// Idle reports whether the tenant serves and has no connection to its ledger at this
// moment, because nobody has used it lately; see [Options.IdleClose].
func (h *Handle) Idle() bool {
	stats, err := h.Stats()
	return err == nil && stats.Connections == 0 && h.State() == StateServing
}

// Done is closed when the tenure is over and nothing of it is left on this
// replica.
func (h *Handle) Done() <-chan struct{} { return h.gone }

// Err returns why the tenure ended, nil while it has not: a [*coord.FencedError]
// if the lease was lost, [coord.CodeLedgerGone] or [coord.CodeLedgerDamaged] if the
// local file was, and [coord.CodeHandleClosed] otherwise.
func (h *Handle) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.ended
}

// Remaining returns for how long this replica may go on acknowledging if no renewal
// comes, and zero or less if it may not.
func (h *Handle) Remaining() time.Duration { return h.lease.Remaining() }

// Check is the tenure's gate: nil while this replica may acknowledge work.
func (h *Handle) Check() error { return h.gate.Check() }

// DB returns the guarded database, for as long as the tenure lasts. Every call
// through it proves the lease. It does not count as work in flight: a handoff
// does not wait for it, and its writes are refused from the moment the final copy
// is being made. Use [Handle.Run] for work that a handoff must wait for. It works on,
// statements included, after the tenant was idle for [Options.IdleClose] and its
// connections were closed; a connection, transaction or result set that is left open
// keeps the tenant from being idle.
func (h *Handle) DB() *sql.DB { return h.db.DB() }

// Stats returns figures about the open database: its size, and that of its write-ahead
// log, which grows while a read is left open beside writes.
func (h *Handle) Stats() (fencing.Stats, error) { return h.db.Stats() }

// Ledger returns the event ledger on [Handle.DB]. Its calls fail if [Options.Schema] is
// a service's own.
func (h *Handle) Ledger() *ledger.Ledger { return ledger.New(h.db.DB(), h.key) }

// A View is what the callback of [Handle.Run] works with. The view, and every
// connection, transaction, statement and result taken from it, stops working when
// the callback returns.
type View struct {
	db     *sql.DB
	ledger *ledger.Ledger
}

// DB returns the tenant's guarded database.
func (v *View) DB() *sql.DB { return v.db }

// Ledger returns the event ledger on [View.DB]; see [Handle.Ledger].
func (v *View) Ledger() *ledger.Ledger { return v.ledger }

func (h *Handle) now() time.Duration { return h.router.opts.Clock.Now() }

func (h *Handle) emit(e Event) {
	e.Time, e.Key, e.Epoch = h.router.opts.Clock.Wall(), h.key, h.Epoch()
	h.router.events.emit(e)
}

func (h *Handle) log() *zap.Logger {
	return h.router.opts.Logger.With(zap.Stringer("tenant", h.key), zap.Uint64("epoch", uint64(h.Epoch())))
}

// Run calls work and, if work returns nil, proves the lease once more: nil from
// Run is an acknowledgement. A handoff waits for work that runs.
//
// It fails with [coord.CodeDraining] when the tenant is being handed off or
// forgotten, with the reason of [Handle.Err] when the tenure is over, with
// [coord.CodeFenced] when the lease cannot be proved before the work, and with a
// [*coord.OutcomeUnknownError] when the lease cannot be proved any more after the
// work: what work committed may or may not last. An error of work is in the tree of
// what Run returns.
func (h *Handle) Run(ctx context.Context, work func(ctx context.Context, v *View) error) error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	if err := h.gate.Check(); err != nil && !safeguards.Off(safeguards.GateBefore) {
		return err
	}
	err := h.judgeFile(h.inView(ctx, work))
	h.endIfUseless(err)
	if coord.CodeOf(err) != "" || safeguards.Off(safeguards.GateAfter) {
		return err
	}
	fenced := h.gate.Check()
	switch {
	case fenced == nil:
		return err
	case err == nil:
		return &coord.OutcomeUnknownError{Cause: fenced}
	}
	// Work that fails behind the fence usually fails because of it, as when the
	// database was closed under it.
	return fmt.Errorf("%w: %w", &coord.OutcomeUnknownError{Cause: fenced}, err)
}

// inView also ends the view when work panics.
func (h *Handle) inView(ctx context.Context, work func(ctx context.Context, v *View) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // after the view has ended: a transaction in it may wait for this
	db := h.db.Scoped(nil)
	defer db.Close()
	return work(ctx, &View{db: db, ledger: ledger.New(db, h.key)})
}
