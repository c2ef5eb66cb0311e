package coordtest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A subject is a store with the keys of one check.
type subject struct {
	Subject
	check int
}

// key returns the check's n-th key.
func (s subject) key(n int) coord.Key {
	k, err := coord.NewKey(s.Organization, fmt.Sprintf("t-%016x%016x", s.check, n))
	if err != nil {
		panic(err) // the organization is the caller's
	}
	return k
}

// pass lets d go by on the store's clock.
func (s subject) pass(ctx context.Context, d time.Duration) error {
	if s.Advance != nil {
		s.Advance(d)
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expire lets a lease of d end.
func (s subject) expire(ctx context.Context, d time.Duration) error {
	return s.pass(ctx, d+time.Millisecond)
}

// long is a TTL that does not run out during a check.
func (s subject) long() time.Duration { return min(60*s.TTL, coord.MaxTTL) }

// take acquires a key that is free, at the epoch that is due and for long.
func (s subject) take(ctx context.Context, key coord.Key, owner string, epoch coord.Epoch) (coord.Grant, error) {
	return s.takeFor(ctx, key, owner, epoch, s.long())
}

// borrow is take for a lease whose end the check is about.
func (s subject) borrow(ctx context.Context, key coord.Key, owner string, epoch coord.Epoch) (coord.Grant, error) {
	return s.takeFor(ctx, key, owner, epoch, s.TTL)
}

func (s subject) takeFor(ctx context.Context, key coord.Key, owner string, epoch coord.Epoch, ttl time.Duration) (coord.Grant, error) {
	g, err := s.Store.Acquire(ctx, key, owner, ttl)
	if err != nil {
		return g, fmt.Errorf("%s could not acquire: %w", owner, err)
	}
	if g.Epoch != epoch {
		return g, fmt.Errorf("%s was granted epoch %d, want %d", owner, g.Epoch, epoch)
	}
	return g, nil
}

// taken is take with one's own tenure, for checks that need no more.
func (s subject) taken(ctx context.Context, key coord.Key, owner string, epoch coord.Epoch) (coord.Tenure, error) {
	_, err := s.take(ctx, key, owner, epoch)
	return coord.Tenure{Key: key, Owner: owner, Epoch: epoch}, err
}

// expectHeld checks that the store keeps others out of key, and says for whom.
func (s subject) expectHeld(ctx context.Context, key coord.Key, owner string, epoch coord.Epoch) error {
	_, err := s.Store.Acquire(ctx, key, "rival", s.TTL)
	return toldHolder(err, key, owner, epoch)
}

func toldHolder(err error, key coord.Key, owner string, epoch coord.Epoch) error {
	var held *coord.LeaseHeldError
	if !errors.As(err, &held) {
		return fmt.Errorf("acquiring what %s holds gives %v, want LEASE_HELD", owner, err)
	}
	if r := held.Record; r.Key != key || r.Owner != owner || r.Epoch != epoch || !r.Held {
		return fmt.Errorf("LEASE_HELD carries %+v, want the tenure of %s at epoch %d", r, owner, epoch)
	}
	return nil
}

// expectRecord checks what Read says of a key.
func (s subject) expectRecord(ctx context.Context, key coord.Key, owner string, epoch coord.Epoch, held bool) (coord.Record, error) {
	r, ok, err := s.Store.Read(ctx, key)
	if err != nil || !ok {
		return r, fmt.Errorf("reading gives %v, %v, want a record", ok, err)
	}
	if r.Key != key || r.Owner != owner || r.Epoch != epoch || r.Held != held {
		return r, fmt.Errorf("the record is %+v, want owner %s, epoch %d, held %v", r, owner, epoch, held)
	}
	return r, nil
}

func (s subject) expectAbsent(ctx context.Context, key coord.Key) error {
	if r, ok, err := s.Store.Read(ctx, key); ok || err != nil {
		return fmt.Errorf("reading gives %+v, %v, %v, want no record", r, ok, err)
	}
	return nil
}

func want(code coord.Code, what string, err error) error {
	if !errors.Is(err, code) {
		return fmt.Errorf("%s gives %v, want %s", what, err, code)
	}
	return nil
}

// first returns the first error of several.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// atOnce runs f for 0 to n-1 at the same time and returns the first failure. A
// panic is one.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return first(errs...)
}

// patiently repeats f while the store is too busy to decide.
func (s subject) patiently(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, coord.CodeLeaseStoreUnavailable) || ctx.Err() != nil {
			return err
		}
		s.breathe(ctx)
	}
}

// breathe keeps a loop from spinning, and in real time leaves the checks beside it the
// store; nothing depends on how long it takes.
func (s subject) breathe(ctx context.Context) {
	pause := time.Millisecond
	if s.Advance == nil {
		pause = 100 * time.Millisecond
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
