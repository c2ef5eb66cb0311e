package coordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

func wantCancelled(what string, err error) error {
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s gives %v, want context.Canceled", what, err)
	}
	return nil
}

func checkRenew(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	for range 6 { // a TTL and a fifth
		if err := s.pass(ctx, s.TTL/5); err != nil {
			return err
		}
		r, err := s.Store.Renew(ctx, g.Tenure, s.TTL)
		if err != nil {
			return fmt.Errorf("renew: %w", err)
		}
		if r.Tenure != g.Tenure || r.Revision != g.Revision || r.TTL < s.TTL || !r.LeaseUntil.After(g.LeaseUntil) {
			return fmt.Errorf("the renewal of %+v is %+v", g, r)
		}
	}
	return s.expectHeld(ctx, s.key(0), "a", 1)
}

// others are tenures that t is not.
func (s subject) others(t coord.Tenure) map[string]coord.Tenure {
	return map[string]coord.Tenure{
		"another owner": {Key: t.Key, Owner: t.Owner + "x", Epoch: t.Epoch},
		"a later epoch": {Key: t.Key, Owner: t.Owner, Epoch: t.Epoch + 1},
		"an old epoch":  {Key: t.Key, Owner: t.Owner, Epoch: t.Epoch - 1},
		"another key":   {Key: s.key(99), Owner: t.Owner, Epoch: t.Epoch},
	}
}

// second makes a tenure of epoch 2, so that there are epochs on both sides of it.
func (s subject) second(ctx context.Context) (coord.Tenure, error) {
	old, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return old, err
	}
	if err := s.Store.Release(ctx, old); err != nil {
		return old, fmt.Errorf("release: %w", err)
	}
	return s.taken(ctx, s.key(0), "a", 2)
}

func checkRenewAnothers(ctx context.Context, s subject) error {
	tenure, err := s.second(ctx)
	if err != nil {
		return err
	}
	for what, other := range s.others(tenure) {
		_, err := s.Store.Renew(ctx, other, s.TTL)
		if err := want(coord.CodeLeaseLost, "renewing for "+what, err); err != nil {
			return err
		}
	}
	if _, err := s.Store.Renew(ctx, tenure, s.TTL); err != nil {
		return fmt.Errorf("the holder's own renewal afterwards: %w", err)
	}
	return nil
}

func checkRenewExpired(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.expire(ctx, g.TTL); err != nil {
		return err
	}
	for range 2 {
		_, err := s.Store.Renew(ctx, g.Tenure, s.TTL)
		if err := want(coord.CodeLeaseLost, "renewing an expired lease", err); err != nil {
			return err
		}
	}
	_, err = s.expectRecord(ctx, s.key(0), "a", 1, false)
	return err
}

func checkRenewReleased(ctx context.Context, s subject) error {
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.Store.Release(ctx, tenure); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	_, err = s.Store.Renew(ctx, tenure, s.TTL)
	return want(coord.CodeLeaseLost, "renewing a released lease", err)
}

func checkRelease(ctx context.Context, s subject) error {
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.Store.Release(ctx, tenure); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if _, err := s.expectRecord(ctx, s.key(0), "a", 1, false); err != nil {
		return err
	}
	_, err = s.taken(ctx, s.key(0), "b", 2)
	return err
}

func checkStaleRelease(ctx context.Context, s subject) error {
	tenure, err := s.second(ctx)
	if err != nil {
		return err
	}
	for what, other := range s.others(tenure) {
		if err := want(coord.CodeLeaseLost, "releasing for "+what, s.Store.Release(ctx, other)); err != nil {
			return err
		}
	}
	_, err = s.expectRecord(ctx, s.key(0), "a", 2, true)
	return err
}

func checkReleaseExpired(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.expire(ctx, g.TTL); err != nil {
		return err
	}
	return s.Store.Release(ctx, g.Tenure)
}

func checkReleaseTwice(ctx context.Context, s subject) error {
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	return first(s.Store.Release(ctx, tenure), s.Store.Release(ctx, tenure))
}

func checkForget(ctx context.Context, s subject) error {
	tenure, err := s.second(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		if floor, err := s.Store.MarkForgotten(ctx, tenure); err != nil || floor != 2 {
			return fmt.Errorf("the floor is %d (%v), want 2", floor, err)
		}
	}
	if r, err := s.expectRecord(ctx, s.key(0), "a", 2, true); err != nil || r.ForgottenAt != 2 {
		return fmt.Errorf("the record is %+v (%v), want a floor of 2", r, err)
	}
	return nil
}

func checkForgetAnothers(ctx context.Context, s subject) error {
	tenure, err := s.second(ctx)
	if err != nil {
		return err
	}
	for what, other := range s.others(tenure) {
		_, err := s.Store.MarkForgotten(ctx, other)
		if err := want(coord.CodeLeaseLost, "forgetting by "+what, err); err != nil {
			return err
		}
	}
	if r, err := s.expectRecord(ctx, s.key(0), "a", 2, true); err != nil || r.ForgottenAt != 0 {
		return fmt.Errorf("the record is %+v (%v), want a floor of 0", r, err)
	}
	return nil
}

func checkForgetExpired(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.expire(ctx, g.TTL); err != nil {
		return err
	}
	_, err = s.Store.MarkForgotten(ctx, g.Tenure)
	if err := want(coord.CodeLeaseLost, "forgetting after expiry", err); err != nil {
		return err
	}
	tenure, err := s.taken(ctx, s.key(0), "a", 2)
	if err != nil {
		return err
	}
	if err := s.Store.Release(ctx, tenure); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	_, err = s.Store.MarkForgotten(ctx, tenure)
	return want(coord.CodeLeaseLost, "forgetting after release", err)
}

func checkFloor(ctx context.Context, s subject) error {
	floor := coord.Epoch(0)
	for epoch := coord.Epoch(1); epoch <= 5; epoch++ {
		g, err := s.take(ctx, s.key(0), "a", epoch)
		if err != nil {
			return err
		}
		if g.ForgottenAt != floor {
			return fmt.Errorf("epoch %d was granted with a floor of %d, want %d", epoch, g.ForgottenAt, floor)
		}
		if epoch == 1 || epoch == 3 {
			if floor, err = s.Store.MarkForgotten(ctx, g.Tenure); err != nil || floor != epoch {
				return fmt.Errorf("the floor is %d (%v), want %d", floor, err, epoch)
			}
		}
		if r, err := s.expectRecord(ctx, s.key(0), "a", epoch, true); err != nil || r.ForgottenAt != floor {
			return fmt.Errorf("the record is %+v (%v), want a floor of %d", r, err, floor)
		}
		if err := s.Store.Release(ctx, g.Tenure); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

// checkAudit expects refusals to leave no trace, and an expiry neither.
func checkAudit(ctx context.Context, s subject) error {
	if s.Audit == nil {
		return nil
	}
	key := s.key(0)
	g, err := s.take(ctx, key, "a", 1)
	if err != nil {
		return err
	}
	_, refusedAcquire := s.Store.Acquire(ctx, key, "b", s.TTL)
	_, refusedRenewal := s.Store.Renew(ctx, coord.Tenure{Key: key, Owner: "b", Epoch: 1}, s.TTL)
	if refusedAcquire == nil || refusedRenewal == nil {
		return nil // other checks tell
	}
	_, renewErr := s.Store.Renew(ctx, g.Tenure, s.long())
	_, forgetErr := s.Store.MarkForgotten(ctx, g.Tenure)
	if err := first(renewErr, forgetErr, s.Store.Release(ctx, g.Tenure)); err != nil {
		return err
	}
	if g, err = s.borrow(ctx, key, "b", 2); err != nil {
		return err
	}
	if err := s.expire(ctx, g.TTL); err != nil {
		return err
	}
	if _, err := s.borrow(ctx, key, "c", 3); err != nil {
		return err
	}
	trail, err := s.Audit.Audit(ctx, key)
	if err != nil {
		return err
	}
	return s.judgeTrail(trail, []coord.AuditEntry{
		{Op: coord.AuditAcquire, Owner: "a", Epoch: 1}, {Op: coord.AuditRenew, Owner: "a", Epoch: 1},
		{Op: coord.AuditForget, Owner: "a", Epoch: 1}, {Op: coord.AuditRelease, Owner: "a", Epoch: 1},
		{Op: coord.AuditAcquire, Owner: "b", Epoch: 2}, {Op: coord.AuditAcquire, Owner: "c", Epoch: 3},
	})
}

func (s subject) judgeTrail(trail, wanted []coord.AuditEntry) error {
	if s.RenewalsUnrecorded {
		isRenewal := func(e coord.AuditEntry) bool { return e.Op == coord.AuditRenew }
		trail, wanted = slices.DeleteFunc(trail, isRenewal), slices.DeleteFunc(wanted, isRenewal)
	}
	if len(trail) != len(wanted) {
		return fmt.Errorf("the trail is %+v, want %+v", trail, wanted)
	}
	for i, e := range trail {
		if e.At.IsZero() || i > 0 && e.At.Before(trail[i-1].At) {
			return fmt.Errorf("the times of the trail %+v do not rise", trail)
		}
		if e.At = wanted[i].At; e != wanted[i] {
			return fmt.Errorf("the trail is %+v, want %+v", trail, wanted)
		}
	}
	return nil
}
