package coordtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/leaseholddb/leasehold/coord"
)

func racer(i int) string { return fmt.Sprint("racer-", i) }

func checkRaceToAcquire(ctx context.Context, s subject) error {
	for round := range s.Rounds {
		if err := s.raceForFree(ctx, s.key(round)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func (s subject) raceForFree(ctx context.Context, key coord.Key) error {
	var winners atomic.Int32
	told := make([]error, s.Racers)
	if err := atOnce(s.Racers, func(i int) error {
		told[i] = s.patiently(ctx, func() error {
			_, err := s.Store.Acquire(ctx, key, racer(i), s.long())
			return err
		})
		if told[i] == nil {
			winners.Add(1)
		}
		return nil
	}); err != nil {
		return err
	}
	if n := winners.Load(); n != 1 {
		return fmt.Errorf("%d of %d racers were granted the lease: %v", n, s.Racers, told)
	}
	winner := ""
	for i, err := range told {
		if err == nil {
			winner = racer(i)
		}
	}
	for _, err := range told {
		if err == nil {
			continue
		}
		if err := toldHolder(err, key, winner, 1); err != nil {
			return err
		}
	}
	_, err := s.expectRecord(ctx, key, winner, 1, true)
	return err
}

func checkRaceForExpiring(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "holder", 1)
	if err != nil {
		return err
	}
	var grants, early atomic.Int32
	var due atomic.Bool // set before the lease may have ended
	raceCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		result <- atOnce(s.Racers, func(i int) error {
			return s.raceForNext(raceCtx, s.key(0), racer(i), func() {
				grants.Add(1)
				if !due.Load() {
					early.Add(1)
				}
			})
		})
	}()
	for range 2 {
		err = first(err, s.pass(ctx, s.TTL/5))
	}
	due.Store(true)
	if err = first(err, s.expire(ctx, g.TTL)); err != nil {
		cancel()
	}
	if err = first(err, <-result); err != nil {
		return err
	}
	if n, soon := grants.Load(), early.Load(); n != 1 || soon != 0 {
		return fmt.Errorf("%d racers were granted the lease, %d of them before it had expired", n, soon)
	}
	return nil
}

// raceForNext tries for epoch 2 until somebody has it.
func (s subject) raceForNext(ctx context.Context, key coord.Key, owner string, granted func()) error {
	for ctx.Err() == nil {
		_, err := s.Store.Acquire(ctx, key, owner, s.long())
		var held *coord.LeaseHeldError
		switch {
		case err == nil:
			granted()
			return nil
		case errors.As(err, &held) && held.Record.Epoch > 1:
			return nil
		case held == nil && !errors.Is(err, coord.CodeLeaseStoreUnavailable):
			return fmt.Errorf("%s: %w", owner, err)
		}
		s.breathe(ctx)
	}
	return ctx.Err()
}

func checkRenewalsAgainstRivals(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "holder", 1)
	if err != nil {
		return err
	}
	raceCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		result <- atOnce(s.Racers, func(i int) error { return s.rival(raceCtx, s.key(0), racer(i)) })
	}()
	for range s.Rounds {
		if err = first(err, s.pass(ctx, s.TTL/5)); err == nil {
			err = s.patiently(ctx, func() error {
				_, err := s.Store.Renew(ctx, g.Tenure, s.TTL)
				return err
			})
		}
	}
	cancel()
	return first(<-result, err)
}

// rival tries until ctx ends and reports a grant.
func (s subject) rival(ctx context.Context, key coord.Key, owner string) error {
	for ctx.Err() == nil {
		_, err := s.Store.Acquire(ctx, key, owner, s.TTL)
		if err == nil {
			return fmt.Errorf("%s was granted what is being renewed", owner)
		}
		if !errors.Is(err, coord.CodeLeaseHeld) && !errors.Is(err, coord.CodeLeaseStoreUnavailable) {
			return fmt.Errorf("%s: %w", owner, err)
		}
		s.breathe(ctx)
	}
	return nil
}

func checkRenewAgainstRelease(ctx context.Context, s subject) error {
	for round := range s.Rounds {
		if err := s.renewDuringRelease(ctx, s.key(round), round%4); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// renewDuringRelease releases a while after the renewals have begun, so that over
// several rounds the release meets them at different points.
func (s subject) renewDuringRelease(ctx context.Context, key coord.Key, while int) error {
	tenure, err := s.taken(ctx, key, "a", 1)
	if err != nil {
		return err
	}
	var renewed sync.WaitGroup // every renewer had one success
	renewed.Add(s.Racers)
	if err := atOnce(s.Racers+1, func(i int) error {
		if i == s.Racers {
			renewed.Wait()
			for range while {
				s.breathe(ctx)
			}
			return s.patiently(ctx, func() error { return s.Store.Release(ctx, tenure) })
		}
		once := sync.OnceFunc(renewed.Done)
		defer once()
		return s.renewUntilLost(ctx, tenure, once)
	}); err != nil {
		return err
	}
	if _, err := s.expectRecord(ctx, key, "a", 1, false); err != nil {
		return err
	}
	_, err = s.taken(ctx, key, "b", 2)
	return err
}

func (s subject) renewUntilLost(ctx context.Context, tenure coord.Tenure, success func()) error {
	for {
		_, err := s.Store.Renew(ctx, tenure, s.TTL)
		switch {
		case err == nil:
			success()
		case errors.Is(err, coord.CodeLeaseLost):
			return nil
		case !errors.Is(err, coord.CodeLeaseStoreUnavailable) || ctx.Err() != nil:
			return fmt.Errorf("renew: %w", err)
		}
		s.breathe(ctx)
	}
}
