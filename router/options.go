package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/ledger"
)

// The defaults of [Options].
const (
	DefaultLeaseTTL         = 10 * time.Second
	DefaultLeaseMargin      = 2 * time.Second
	DefaultDrainTimeout     = 120 * time.Second
	DefaultMinTenure        = 10 * time.Second
	DefaultStoreTimeout     = 5 * time.Second
	DefaultCloseConcurrency = 8
	DefaultKeepCopies       = 3
	DefaultIdleClose        = 30 * time.Second
	DefaultCopyConcurrency  = 8

	// MinIdleClose is the least IdleClose, so that a replica does not busy itself with
	// tenants that nobody uses.
	MinIdleClose = 10 * time.Millisecond

	// minRenewEvery keeps very short TTLs from busying the lease store.
	minRenewEvery = 50 * time.Millisecond
)

// Options configure a [Router]. What is marked required has no default; every
// other zero field means its named default.
type Options struct {
	// ReplicaID is the owner's name in leases and copies. Required, and unique
	// per incarnation: a process that restarts under its old name could not be
	// told from its former self.
	ReplicaID string
	// StateRoot is the directory for local ledgers. Required. Only one router may
	// use it; what it holds of a tenant is replaced whenever the tenant is opened.
	StateRoot string
	// Leases decides who owns a tenant. Required.
	Leases coord.LeaseStore
	// Copies keeps the durable copies. Required, and shared by all replicas.
	Copies copystore.Store

	// LeaseTTL is how long a crashed owner keeps others out.
	LeaseTTL time.Duration
	// LeaseMargin is how long before the TTL ends the owner stops acknowledging;
	// see [fencing.LeaseOptions]. Zero means [DefaultLeaseMargin], or a fifth of
	// LeaseTTL if that is less.
	LeaseMargin time.Duration
	// RenewEvery is the time between renewals that succeed; failures are retried
	// sooner. Zero means a third of LeaseTTL, at least 50 ms.
	RenewEvery time.Duration
	// SnapshotEvery is the time between periodic copies. Zero means none: a crash
	// then loses everything since the last explicit copy or handoff.
	SnapshotEvery time.Duration
	// DrillEvery is within what time the newest copy of an open tenant is proved
	// restorable again, by restoring it beside the ledger; see [Handle.Proved]. Zero
	// means never. It takes room for a second ledger, one tenant at a time.
	DrillEvery time.Duration
	// DrainTimeout bounds how long a handoff or a forget waits for running work.
	DrainTimeout time.Duration
	// MinTenure is how old a tenure must be before another replica's request for the
	// tenant is honoured by a handoff; see [Router.OpenWait]. Negative means that none
	// ever is.
	MinTenure time.Duration
	// StoreTimeout bounds each request to the lease store other than renewals,
	// which are bounded by what is left until the fence.
	StoreTimeout time.Duration

	// CopyTimeout bounds each small request to the copy store, and
	// CopyStallTimeout how long the transfer of an image may stand still; zero
	// means the defaults of [copystore.Options].
	CopyTimeout, CopyStallTimeout time.Duration

	// MaxTenants caps the tenants that are open or being opened. Zero: no cap.
	MaxTenants int
	// CloseConcurrency is how many tenants Close hands off at once.
	CloseConcurrency int
	// CopyConcurrency is how many periodic copies are made at once, over all tenants.
	CopyConcurrency int
	// IdleClose is after about how long without use a tenant's connections are closed:
	// at least half of it, at most twice. From then on the tenant takes no descriptor and
	// little memory, but holds its lease; the next call opens the local ledger again,
	// under the same tenure and in about a millisecond.
	IdleClose time.Duration
	// IdleHandoff is how long a tenant must have been without connections and calls of
	// Run before it is handed off to nobody in particular. Then it costs nothing at all,
	// and the next Open begins a new tenure. Handles, and what was taken from
	// [Handle.DB], end as with every handoff. Zero means never.
	IdleHandoff time.Duration
	// KeepCopies is how many of the newest committed copies of a tenant are kept.
	KeepCopies int

	// MaxValue bounds the bytes of one value in a tenant's database; see
	// [fencing.DatabaseOptions]. Zero means what SQLite can hold.
	MaxValue int

	// Schema is what tenants' databases hold; nil means [ledger.Builtin], the event
	// ledger. All replicas need the same one.
	Schema Schema

	// Clock is what fences are measured on; nil means [coord.SystemClock].
	Clock coord.Clock
	// Observer is called with every [Event], one at a time, in order. It may
	// block or panic: later events wait or are dropped, tenants are not affected.
	Observer func(Event)
	// Logger is silent while all is well; nil means no logs.
	Logger *zap.Logger
}

// withDefaults fills what was left zero, replacing nothing that was set.
func (o Options) withDefaults() Options {
	setDefault(&o.LeaseTTL, DefaultLeaseTTL)
	setDefault(&o.LeaseMargin, min(DefaultLeaseMargin, o.LeaseTTL/5))
	setDefault(&o.RenewEvery, max(minRenewEvery, o.LeaseTTL/3))
	setDefault(&o.DrainTimeout, DefaultDrainTimeout)
	setDefault(&o.MinTenure, DefaultMinTenure)
	setDefault(&o.StoreTimeout, DefaultStoreTimeout)
	setDefault(&o.CloseConcurrency, DefaultCloseConcurrency)
	setDefault(&o.KeepCopies, DefaultKeepCopies)
	setDefault(&o.CopyConcurrency, DefaultCopyConcurrency)
	setDefault(&o.IdleClose, DefaultIdleClose)
	if o.Schema == nil {
		o.Schema = ledger.Builtin{}
	}
	if o.Clock == nil {
		o.Clock = coord.SystemClock()
	}
	if o.Observer == nil {
		o.Observer = func(Event) {}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// validate names every violation, after the defaults were filled in.
func (o Options) validate() error {
	var all []error
	demand := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	if err := coord.ValidateOwner(o.ReplicaID); err != nil {
		all = append(all, fmt.Errorf("ReplicaID: %w", err))
	}
	demand(o.StateRoot != "", "StateRoot is empty")
	demand(o.Leases != nil, "Leases is nil")
	demand(o.Copies != nil, "Copies is nil")
	if err := o.lease().Validate(); err != nil {
		all = append(all, err)
	}
	demand(o.RenewEvery > 0, "RenewEvery must be positive, not %v", o.RenewEvery)
	demand(o.RenewEvery < o.LeaseTTL-o.LeaseMargin, "RenewEvery (%v) must be less than LeaseTTL − LeaseMargin (%v)", o.RenewEvery, o.LeaseTTL-o.LeaseMargin)
	demand(o.SnapshotEvery >= 0, "SnapshotEvery must not be negative")
	demand(o.DrillEvery >= 0, "DrillEvery must not be negative")
	demand(o.DrainTimeout > 0, "DrainTimeout must be positive, not %v", o.DrainTimeout)
	demand(o.StoreTimeout > 0, "StoreTimeout must be positive, not %v", o.StoreTimeout)
	demand(o.CopyTimeout >= 0 && o.CopyStallTimeout >= 0, "CopyTimeout and CopyStallTimeout must not be negative")
	demand(o.MaxValue >= 0, "MaxValue must not be negative")
	demand(o.MaxTenants >= 0, "MaxTenants must not be negative")
	demand(o.CloseConcurrency > 0, "CloseConcurrency must be positive, not %d", o.CloseConcurrency)
	demand(o.CopyConcurrency > 0, "CopyConcurrency must be positive, not %d", o.CopyConcurrency)
	demand(o.IdleClose >= MinIdleClose, "IdleClose must be at least %v, not %v", MinIdleClose, o.IdleClose)
	demand(o.IdleHandoff >= 0, "IdleHandoff must not be negative")
	demand(o.KeepCopies > 0, "KeepCopies must be positive, not %d", o.KeepCopies)
	if len(all) > 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "router options", Err: errors.Join(all...)}
	}
	return nil
}

// verify asks the schema. The event ledger gives its codes by itself, and what it gives
// none to is no verdict.
func (o Options) verify(ctx context.Context, path string, key coord.Key) (int64, error) {
	events, err := o.Schema.Verify(ctx, path, key)
	if _, builtin := o.Schema.(ledger.Builtin); !builtin {
		err = judge(ctx, key, err)
	}
	return events, err
}

func (o Options) lease() fencing.LeaseOptions {
	return fencing.LeaseOptions{TTL: o.LeaseTTL, Margin: o.LeaseMargin, Clock: o.Clock}
}
