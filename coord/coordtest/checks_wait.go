package coordtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// waiter is nil for a store that cannot wait; nothing is checked then.
func (s subject) waiter() coord.ReleaseWaiter {
	w, _ := s.Store.(coord.ReleaseWaiter)
	return w
}

func checkWaitForNothing(ctx context.Context, s subject) error {
	w := s.waiter()
	if w == nil {
		return nil
	}
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.Store.Release(ctx, tenure); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	for n := range 2 { // released, and never acquired
		if err := w.WaitReleased(ctx, s.key(n)); err != nil {
			return fmt.Errorf("waiting for a free key gives %w", err)
		}
	}
	return want(coord.CodeIDInvalid, "waiting for the zero key", w.WaitReleased(ctx, coord.Key{}))
}

// waiting starts a wait whose result it returns on the channel, with a panic as
// one.
func waiting(ctx context.Context, w coord.ReleaseWaiter, key coord.Key) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- atOnce(1, func(int) error { return w.WaitReleased(ctx, key) })
	}()
	return done
}

func checkWaitForRelease(ctx context.Context, s subject) error {
	w := s.waiter()
	if w == nil {
		return nil
	}
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	done := waiting(ctx, w, tenure.Key)
	if _, err := s.Store.Renew(ctx, tenure, s.long()); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	for range 10 {
		s.breathe(ctx)
	}
	select {
	case err := <-done:
		return fmt.Errorf("the wait ended (%v) before the release", err)
	default:
	}
	if err := s.Store.Release(ctx, tenure); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return <-done
}

func checkWaitForExpiry(ctx context.Context, s subject) error {
	w := s.waiter()
	if w == nil {
		return nil
	}
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	done := waiting(ctx, w, g.Key)
	if err := s.expire(ctx, g.TTL); err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	_, err = s.taken(ctx, s.key(0), "b", 2)
	return err
}

func checkWaitCancelled(ctx context.Context, s subject) error {
	w := s.waiter()
	if w == nil {
		return nil
	}
	if _, err := s.Store.Acquire(ctx, s.key(0), "a", coord.MaxTTL); err != nil {
		return err
	}
	waitCtx, cancel := context.WithCancel(ctx)
	done := waiting(waitCtx, w, s.key(0))
	s.breathe(ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a cancelled wait gives %v", err)
	}
	return nil
}
