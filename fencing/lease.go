package fencing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// handBackTimeout bounds the release of a grant that came too late to be used.
// Missing it costs the next owner the rest of one TTL, nothing else.
const handBackTimeout = 2 * time.Second

// readGrace is how long reads rely on one reading of the clock that runs through
// host suspension, which costs twice as much as the other, and ten times without cgo.
const readGrace = time.Millisecond

// LeaseOptions says how a lease is held.
type LeaseOptions struct {
	// TTL is the time to live to ask the store for, within [coord.MinTTL] and
	// [coord.MaxTTL].
	TTL time.Duration
	// Margin is how long before the granted TTL ends the holder stops
	// acknowledging. It must be within [0, TTL) and exceed the drift that the
	// holder's and the store's clock can have over one TTL.
	Margin time.Duration
	// Clock is what the fence is measured on; nil means [coord.SystemClock].
	Clock coord.Clock
}

// Validate reports every violated bound together, with [coord.CodeOptionsInvalid].
func (o LeaseOptions) Validate() error {
	var all []error
	if err := coord.ValidateTTL(o.TTL); err != nil {
		all = append(all, err)
	}
	if o.Margin < 0 || o.Margin >= o.TTL {
		all = append(all, fmt.Errorf("the margin must be within [0, TTL), not %v of %v", o.Margin, o.TTL))
	}
	if len(all) > 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "lease options", Err: errors.Join(all...)}
	}
	return nil
}

// A Lease is one tenure as its holder sees it. It never reads the store by itself:
// somebody must call Renew in time.
//
// All methods are safe for concurrent use. Renew, Release and Forget run one at a
// time in the order of their calls; Check waits for none of them, nor does [Extend].
//
//	held ──fence passes──▶ expired ──granted renewal──▶ held
//	held, expired ──refused renewal──▶ lost
//	held, expired ──Release──▶ released
type Lease struct {
	store  coord.LeaseStore
	clock  coord.Clock
	ttl    time.Duration
	margin time.Duration
	grant  coord.Grant

	state atomic.Uint32 // leaseState; leaves stateHeld once and for all
	fence atomic.Int64  // nanoseconds on clock; moved by extend alone, never back

	proved atomic.Int64 // nanoseconds on clock.Quick at the latest Check that CheckRead made

	// turn holds one token. Goroutines blocked on a channel send are served first
	// come, first served, which is what orders renewals and the release.
	turn     chan struct{}
	returned bool // the store confirmed the release; guarded by turn

	// Made once, so that a refusing gate allocates nothing either.
	expired, lost, released error
}

// Acquire asks store for key on behalf of owner and returns the tenure, whose
// fence is measured from before the request was sent.
//
// It fails as the store does, and with [coord.CodeLeaseLost] if the grant arrived
// when its usable part had already passed (it is handed back), or if the store
// granted something else than was asked for.
func Acquire(ctx context.Context, store coord.LeaseStore, key coord.Key, owner string, opts LeaseOptions) (*Lease, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	clock := opts.Clock
	if clock == nil {
		clock = coord.SystemClock()
	}
	if safeguards.Off(safeguards.Margin) {
		opts.Margin = 0
	}
	sentAt := clock.Now()
	grant, err := store.Acquire(ctx, key, owner, opts.TTL)
	if err != nil {
		return nil, err
	}
	if grant.Key != key || grant.Owner != owner || grant.Epoch == 0 {
		return nil, &coord.Error{Code: coord.CodeLeaseLost, Op: "acquire", Key: key, Detail: "the store granted another tenure than the one asked for"}
	}
	l := &Lease{
		store: store, clock: clock, ttl: opts.TTL, margin: opts.Margin, grant: grant,
		turn:     make(chan struct{}, 1),
		expired:  &coord.FencedError{Key: key, Epoch: grant.Epoch, Reason: coord.FenceExpired},
		lost:     &coord.FencedError{Key: key, Epoch: grant.Epoch, Reason: coord.FenceLost},
		released: &coord.FencedError{Key: key, Epoch: grant.Epoch, Reason: coord.FenceReleased},
	}
	l.fence.Store(int64(sentAt + grant.TTL - opts.Margin))
	if l.Check() != nil {
		return nil, l.handBack(ctx)
	}
	return l, nil
}

// handBack gives up a grant that is of no use and says so.
func (l *Lease) handBack(ctx context.Context) error {
	ctx, cancel := coord.WithTimeout(context.WithoutCancel(ctx), l.clock, handBackTimeout)
	defer cancel()
	return &coord.Error{
		Code: coord.CodeLeaseLost, Op: "acquire", Key: l.grant.Key,
		Detail: "the grant took longer to arrive than it may be used; it was handed back",
		Err:    l.Release(ctx),
	}
}

// Tenure returns key, owner and epoch of the grant.
func (l *Lease) Tenure() coord.Tenure { return l.grant.Tenure }

// Grant returns the grant as Acquire got it; renewals do not change it.
func (l *Lease) Grant() coord.Grant { return l.grant }

// Remaining returns how long the gate will stay open if no renewal comes, and
// zero or less if it is closed.
func (l *Lease) Remaining() time.Duration {
	if l.current() != stateHeld {
		return 0
	}
	return time.Duration(l.fence.Load()) - l.clock.Now()
}

// Check is the gate: nil while the lease is provably held, else a
// [*coord.FencedError] with the reason. It costs a clock read and two atomic
// loads, allocates nothing and blocks on nothing.
func (l *Lease) Check() error {
	// The clock is read after everything that may take long, and before the rest, so that
	// the moment of the reading is the one that is proved: a pause before it makes the
	// answer "no", a release that is begun before it does too, and a pause after it is what
	// the checks that follow are for.
	now := l.clock.Now()
	if err := l.Ended(); err != nil {
		return err
	}
	if now < time.Duration(l.fence.Load()) {
		return nil
	}
	return l.expired
}

// CheckRead is Check for steps that can commit nothing, such as the rows of a
// result: it asks [coord.Clock.Quick], and Check once in readGrace. So it may be
// late by readGrace of running time in noticing that the host was suspended, and
// by nothing otherwise.
func (l *Lease) CheckRead() error {
	if err := l.Ended(); err != nil {
		return err
	}
	quick := l.clock.Quick()
	if quick < time.Duration(l.fence.Load()) && quick-time.Duration(l.proved.Load()) < readGrace {
		return nil
	}
	if err := l.Check(); err != nil {
		return err
	}
	l.proved.Store(int64(quick))
	return nil
}

// Ended returns nil while the tenure may still go on, be it through a renewal of
// a fence that has passed, and the reason once it is over for good.
func (l *Lease) Ended() error {
	switch l.current() {
	case stateReleased:
		return l.released
	case stateLost:
		return l.lost
	}
	return nil
}

// Renew asks the store to move the lease's end, and moves the fence accordingly,
// never back. A refusal ([coord.CodeLeaseLost]) ends the tenure for good. After
// any other failure the fence stays where it was, and a later Renew may succeed,
// also after the fence has passed: an epoch that is unchanged in the store was
// granted to nobody else.
func (l *Lease) Renew(ctx context.Context) error {
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := l.Ended(); err != nil {
		return err
	}
	sentAt := l.clock.Now()
	grant, err := l.store.Renew(ctx, l.grant.Tenure, l.ttl)
	if err != nil {
		return l.judge(err)
	}
	if grant.Tenure != l.grant.Tenure {
		return l.judge(&coord.Error{Code: coord.CodeLeaseLost, Op: "renew", Key: l.grant.Key, Detail: "the store renewed another tenure than the one asked for"})
	}
	l.extend(sentAt, grant)
	return nil
}

// extend moves the fence to what a renewal that was asked for at sentAt earned.
func (l *Lease) extend(sentAt time.Duration, grant coord.Grant) {
	fence := int64(sentAt + grant.TTL - l.margin)
	for {
		known := l.fence.Load()
		if fence <= known || l.fence.CompareAndSwap(known, fence) {
			return
		}
	}
}

// Release closes the gate, at once and for good, and then tells the store, so
// that the next owner waits for nothing. If the store cannot be reached the error
// says so, the gate stays closed and the lease expires by itself; Release may be
// called again to tell the store once more. A tenure that is already lost is
// [coord.CodeLeaseLost]. Releasing again after a success is nil.
func (l *Lease) Release(ctx context.Context) error {
	if !safeguards.Off(safeguards.StopBeforeRelease) {
		l.state.CompareAndSwap(uint32(stateHeld), uint32(stateReleased))
	}
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case l.current() == stateLost:
		return &coord.Error{Code: coord.CodeLeaseLost, Op: "release", Key: l.grant.Key, Detail: "the tenure was over before it could be released"}
	case l.returned:
		return nil
	}
	if err := l.store.Release(ctx, l.grant.Tenure); err != nil {
		return err
	}
	l.returned = true
	return nil
}

// Forget raises the tenant's forgotten floor to this tenure's epoch and returns
// the floor. A refusal ([coord.CodeLeaseLost]) ends the tenure.
func (l *Lease) Forget(ctx context.Context) (coord.Epoch, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := l.Ended(); err != nil {
		return 0, err
	}
	floor, err := l.store.MarkForgotten(ctx, l.grant.Tenure)
	if err != nil {
		return 0, l.judge(err)
	}
	return floor, nil
}

// judge is the one place that decides which answers of the store end the tenure.
func (l *Lease) judge(err error) error {
	if errors.Is(err, coord.CodeLeaseLost) {
		l.state.CompareAndSwap(uint32(stateHeld), uint32(stateLost))
	}
	return err
}

func (l *Lease) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Key: l.grant.Key, Detail: "waiting for an earlier lease operation", Err: ctx.Err()}
	}
}

type leaseState uint32

const (
	stateHeld leaseState = iota // also while the fence has passed: a renewal may resume it
	stateReleased
	stateLost
)

func (l *Lease) current() leaseState { return leaseState(l.state.Load()) }
