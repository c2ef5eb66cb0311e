package router

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// A Router opens tenants on one replica and owns the handles. It is safe for
// concurrent use.
type Router struct {
	opts    Options
	copies  *copystore.Copies
	events  *dispatcher
	outage  *outage
	drill   chan struct{} // one slot: drills take turns
	copying chan struct{} // Options.CopyConcurrency slots, for periodic copies

	// opening ends when the router is closed: openings under way are undone.
	opening     context.Context
	stopOpening context.CancelFunc
	openings    sync.WaitGroup
	background  sync.WaitGroup // renews, hears and honours requests of other replicas, and hands off tenants that nobody uses

	together atomic.Bool // renewTogether renews what is served

	rested   atomic.Bool  // a tenant has gone to rest since returned
	returned atomic.Int64 // when memory was last given back, on the clock

	closing  atomic.Bool   // somebody is doing the work of Close
	closed   chan struct{} // closed when it is done
	closeErr error         // set before closed is closed

	mu struct {
		sync.Mutex
		closed  bool // no opening begins any more
		tenants map[coord.Key]*tenant
		order   []*tenant          // in opening order
		noted   map[coord.Key]bool // another replica wanted it, when last heard
		warm    map[coord.Key]*copystore.Warm
	}
}

// A tenant is an entry of the router's table: an opening under way, then a handle
// until nothing is left of it.
type tenant struct {
	key    coord.Key
	waited bool          // the opening waited for the tenant
	opened chan struct{} // closed when handle or err is set

	handle *Handle
	err    error
}

// New returns a router that holds no tenant yet. Options that contradict each
// other are refused together with [coord.CodeOptionsInvalid]; nothing is touched
// before that.
func New(opts Options) (*Router, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	root, err := filepath.Abs(opts.StateRoot)
	if err != nil {
		return nil, fmt.Errorf("state root: %w", err)
	}
	opts.StateRoot = root
	copies, err := copystore.New(opts.Copies, copystore.Options{Clock: opts.Clock, CallTimeout: opts.CopyTimeout, StallTimeout: opts.CopyStallTimeout})
	if err != nil {
		return nil, err
	}
	r := &Router{opts: opts, copies: copies, drill: make(chan struct{}, 1), copying: make(chan struct{}, opts.CopyConcurrency), closed: make(chan struct{})}
	r.outage = newOutage(r)
	r.opening, r.stopOpening = context.WithCancel(context.Background())
	r.mu.tenants = make(map[coord.Key]*tenant)
	r.mu.noted = make(map[coord.Key]bool)
	r.mu.warm = make(map[coord.Key]*copystore.Warm)
	r.events = newDispatcher(opts.Observer, func(p any) {
		opts.Logger.Error("the observer panicked", zap.Any("panic", p))
	})
	if store, ok := opts.Leases.(coord.BatchRenewer); ok {
		r.together.Store(true)
		r.background.Go(func() { r.renewTogether(store) })
	}
	if store, ok := opts.Leases.(coord.WantStore); ok {
		r.background.Go(func() { r.watchWants(store) })
	}
	if store, ok := opts.Leases.(coord.EndWatcher); ok {
		r.background.Go(func() { r.watchEnds(store) })
	}
	return r, nil
}

// ReplicaID returns the owner's name that this router acquires leases under.
func (r *Router) ReplicaID() string { return r.opts.ReplicaID }

// TenantRoot returns the directory in which a service may keep further files of
// a tenant, under names that begin with neither "ledger" nor a dot. They stay on
// this replica when the tenant moves; Forget deletes those of the replica that
// forgets.
func (r *Router) TenantRoot(key coord.Key) string {
	return filepath.Join(r.opts.StateRoot, filepath.FromSlash(key.Dir()))
}

// Open returns the tenant's handle, acquiring, restoring and claiming it first if
// this replica does not have it. A tenant that never existed is created.
// Concurrent calls share one acquisition and get the same handle.
//
// The opening goes on when ctx ends, so that a restore longer than one caller's
// patience is not begun again by the next.
//
//   - [*coord.LeaseHeldError]: another replica owns the tenant; no file was touched.
//   - [coord.CodeDraining]: this replica is giving the tenant up; try again.
//   - [coord.CodeAtCapacity], [coord.CodeRouterClosed]: nothing was touched.
//   - [*coord.RestoreInvalidError], [coord.CodeEpochRolledBack],
//     [coord.CodeCopyConflict], [coord.CodeCopyStoreUnavailable]: the ledger could
//     not be put in place; the lease was given back and nothing is served.
func (r *Router) Open(ctx context.Context, key coord.Key) (*Handle, error) {
	return r.openAs(ctx, key, asking)
}

// Whether an opening waited for the tenant, or leaves it to those that do.
const (
	waiting = true
	asking  = false
)

func (r *Router) openAs(ctx context.Context, key coord.Key, waited bool) (*Handle, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	for {
		t, err := r.enroll(key, waited)
		if err != nil {
			return nil, err
		}
		if err := await(ctx, t.opened); err != nil {
			return nil, fmt.Errorf("open %s: still under way: %w", key, err)
		}
		if t.err != nil {
			return nil, t.err
		}
		err = t.handle.serving()
		if err == nil {
			return t.handle, nil
		}
		if t.handle.Err() == nil {
			return nil, err
		}
		// What is left of an ended tenure is about to be cleared away.
		if err := await(ctx, t.handle.gone); err != nil {
			return nil, fmt.Errorf("open %s: an earlier tenure is still ending: %w", key, err)
		}
	}
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// OpenExisting is Open for callers that must not create a tenant: one that never
// existed or was forgotten fails with [coord.CodeTenantUnknown], and nothing was
// written anywhere.
func (r *Router) OpenExisting(ctx context.Context, key coord.Key) (*Handle, error) {
	if r.HandleOf(key) != nil {
		return r.Open(ctx, key)
	}
	if known, err := r.exists(ctx, key); err != nil {
		return nil, err
	} else if !known {
		return nil, &coord.Error{Code: coord.CodeTenantUnknown, Key: key}
	}
	return r.Open(ctx, key)
}

// exists also believes copies without a record: a lease store that was replaced
// must be reported by the opening, not read as a tenant that never was.
func (r *Router) exists(ctx context.Context, key coord.Key) (bool, error) {
	record, known, err := r.record(ctx, key)
	if err != nil {
		return false, err
	}
	if known {
		return record.Held || record.Epoch > record.ForgottenAt, nil
	}
	newest, err := r.copies.NewestEpoch(ctx, key)
	return newest > 0, err
}

// record asks the lease store, bounded.
func (r *Router) record(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	ctx, cancel := coord.WithTimeout(ctx, r.opts.Clock, r.opts.StoreTimeout)
	defer cancel()
	return r.opts.Leases.Read(ctx, key)
}

// Forget deletes the tenant for good, opening it here first if need be; see
// [Handle.Forget]. It may be repeated after a failure until it succeeds. A tenant
// of which no record exists fails with [coord.CodeTenantUnknown].
func (r *Router) Forget(ctx context.Context, key coord.Key) (Forgotten, error) {
	h := r.HandleOf(key)
	if h == nil {
		record, known, err := r.record(ctx, key)
		if err != nil {
			return Forgotten{}, err
		}
		if !known {
			return Forgotten{}, &coord.Error{Code: coord.CodeTenantUnknown, Key: key}
		}
		if record.Held && record.Owner != r.opts.ReplicaID {
			return Forgotten{}, &coord.LeaseHeldError{Record: record}
		}
		if h, err = r.Open(ctx, key); err != nil {
			return Forgotten{}, err
		}
	}
	return h.Forget(ctx)
}

// HandleOf returns the tenant's open handle, nil if there is none.
func (r *Router) HandleOf(key coord.Key) *Handle {
	r.mu.Lock()
	t := r.mu.tenants[key]
	r.mu.Unlock()
	return t.openHandle()
}

// Handles returns the open handles in opening order.
func (r *Router) Handles() []*Handle {
	r.mu.Lock()
	tenants := slices.Clone(r.mu.order)
	r.mu.Unlock()
	var handles []*Handle
	for _, t := range tenants {
		if h := t.openHandle(); h != nil {
			handles = append(handles, h)
		}
	}
	return handles
}

// OpenCount returns how many tenants this replica serves at this moment.
func (r *Router) OpenCount() int {
	n := 0
	for _, h := range r.Handles() {
		if h.State() == StateServing {
			n++
		}
	}
	return n
}

func (t *tenant) openHandle() *Handle {
	if t == nil {
		return nil
	}
	select {
	case <-t.opened:
		return t.handle
	default:
		return nil
	}
}

// enroll returns the tenant's entry, starting its opening if there was none.
func (r *Router) enroll(key coord.Key, waited bool) (*tenant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return nil, &coord.Error{Code: coord.CodeRouterClosed, Key: key}
	}
	if t := r.mu.tenants[key]; t != nil {
		return t, nil
	}
	if r.fullLocked() {
		return nil, r.atCapacity(key)
	}
	t := &tenant{key: key, waited: waited, opened: make(chan struct{})}
	r.mu.tenants[key] = t
	r.mu.order = append(r.mu.order, t)
	r.openings.Go(func() { r.open(t) })
	return t, nil
}

func (r *Router) fullLocked() bool {
	return r.opts.MaxTenants > 0 && len(r.mu.tenants) >= r.opts.MaxTenants
}

func (r *Router) atCapacity(key coord.Key) error {
	return &coord.Error{Code: coord.CodeAtCapacity, Key: key, Detail: fmt.Sprintf("this replica holds %d tenants, the most it may", r.opts.MaxTenants)}
}

// vacate forgets the tenant's entry, so that it may be opened here again.
func (r *Router) vacate(key coord.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.mu.order, r.mu.tenants[key]); i >= 0 {
		r.mu.order = slices.Delete(r.mu.order, i, i+1)
	}
	delete(r.mu.tenants, key)
}
