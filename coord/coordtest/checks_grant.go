package coordtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

func checkAbsent(ctx context.Context, s subject) error {
	return first(s.expectAbsent(ctx, s.key(0)), s.expectAbsent(ctx, s.key(0)))
}

func checkFirstGrant(ctx context.Context, s subject) error {
	sentAt := time.Now()
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if g.Key != s.key(0) || g.Owner != "a" || g.TTL < s.TTL || g.ForgottenAt != 0 || g.Revision <= 0 {
		return fmt.Errorf("the grant is %+v", g)
	}
	// A clock that is moved by hand has a calendar of its own.
	if s.Advance == nil && g.LeaseUntil.Before(sentAt) || g.LeaseUntil.IsZero() {
		return fmt.Errorf("the granted lease ended at %v", g.LeaseUntil)
	}
	return nil
}

func checkRead(ctx context.Context, s subject) error {
	g, err := s.take(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	r, err := s.expectRecord(ctx, s.key(0), "a", 1, true)
	if err != nil {
		return err
	}
	if r.Revision != g.Revision || r.ForgottenAt != 0 || r.LeaseUntil.IsZero() {
		return fmt.Errorf("the record is %+v after the grant %+v", r, g)
	}
	return nil
}

func checkHeld(ctx context.Context, s subject) error {
	if _, err := s.taken(ctx, s.key(0), "a", 1); err != nil {
		return err
	}
	return first(s.expectHeld(ctx, s.key(0), "a", 1), s.expectHeld(ctx, s.key(0), "a", 1))
}

func checkHeldByOneself(ctx context.Context, s subject) error {
	if _, err := s.taken(ctx, s.key(0), "a", 1); err != nil {
		return err
	}
	_, err := s.Store.Acquire(ctx, s.key(0), "a", s.TTL)
	return toldHolder(err, s.key(0), "a", 1)
}

func checkAfterRelease(ctx context.Context, s subject) error {
	for epoch := coord.Epoch(1); epoch <= 3; epoch++ {
		tenure, err := s.taken(ctx, s.key(0), fmt.Sprint("after-release-", epoch%2), epoch)
		if err != nil {
			return err
		}
		if err := s.Store.Release(ctx, tenure); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

func checkAfterExpiry(ctx context.Context, s subject) error {
	for epoch := coord.Epoch(1); epoch <= 3; epoch++ {
		g, err := s.borrow(ctx, s.key(0), fmt.Sprint("after-expiry-", epoch%2), epoch)
		if err != nil {
			return err
		}
		if err := s.expire(ctx, g.TTL); err != nil {
			return err
		}
	}
	return nil
}

func checkEpochs(ctx context.Context, s subject) error {
	var last coord.Revision
	for epoch := coord.Epoch(1); epoch <= 12; epoch++ {
		g, err := s.borrow(ctx, s.key(0), fmt.Sprint("epochs-", epoch%3), epoch)
		if err != nil {
			return err
		}
		if g.Revision <= last {
			return fmt.Errorf("epoch %d has revision %d after %d", epoch, g.Revision, last)
		}
		last = g.Revision
		if epoch%6 == 0 {
			err = s.expire(ctx, g.TTL)
		} else {
			err = s.Store.Release(ctx, g.Tenure)
		}
		if err != nil {
			return fmt.Errorf("ending epoch %d: %w", epoch, err)
		}
	}
	return nil
}

func checkKeysApart(ctx context.Context, s subject) error {
	keep, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	other, err := s.taken(ctx, s.key(1), "a", 1)
	if err != nil {
		return err
	}
	if _, err := s.Store.MarkForgotten(ctx, other); err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	if err := s.Store.Release(ctx, other); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	r, err := s.expectRecord(ctx, keep.Key, "a", 1, true)
	if err != nil || r.ForgottenAt != 0 {
		return fmt.Errorf("after forgetting and releasing a neighbour: %+v, %w", r, err)
	}
	return s.expectAbsent(ctx, s.key(2))
}

func checkBadTTL(ctx context.Context, s subject) error {
	for _, ttl := range []time.Duration{-time.Second, 0, coord.MinTTL - time.Millisecond, coord.MinTTL + time.Microsecond, coord.MaxTTL + time.Millisecond} {
		_, err := s.Store.Acquire(ctx, s.key(0), "a", ttl)
		if err := want(coord.CodeTTLInvalid, fmt.Sprintf("acquiring for %v", ttl), err); err != nil {
			return err
		}
	}
	if err := s.expectAbsent(ctx, s.key(0)); err != nil {
		return err
	}
	tenure, err := s.taken(ctx, s.key(1), "a", 1)
	if err != nil {
		return err
	}
	_, err = s.Store.Renew(ctx, tenure, coord.MinTTL-time.Millisecond)
	return want(coord.CodeTTLInvalid, "renewing for too short a time", err)
}

func checkBadIDs(ctx context.Context, s subject) error {
	owners := []string{"", "two words", "line\nfeed", "\xff", strings.Repeat("x", coord.MaxOwner+1)}
	for _, owner := range owners {
		_, err := s.Store.Acquire(ctx, s.key(0), owner, s.TTL)
		if err := want(coord.CodeIDInvalid, fmt.Sprintf("acquiring for owner %.20q", owner), err); err != nil {
			return err
		}
	}
	if err := s.expectAbsent(ctx, s.key(0)); err != nil {
		return err
	}
	_, err := s.Store.Acquire(ctx, coord.Key{}, "a", s.TTL)
	_, _, readErr := s.Store.Read(ctx, coord.Key{})
	return first(
		want(coord.CodeIDInvalid, "acquiring the zero key", err),
		want(coord.CodeIDInvalid, "reading the zero key", readErr),
		s.expectBadTenures(ctx),
	)
}

func (s subject) expectBadTenures(ctx context.Context) error {
	for _, bad := range []coord.Tenure{{Owner: "a", Epoch: 1}, {Key: s.key(0), Epoch: 1}, {Key: s.key(0), Owner: "a"}} {
		_, renewErr := s.Store.Renew(ctx, bad, s.TTL)
		_, forgetErr := s.Store.MarkForgotten(ctx, bad)
		if err := first(
			want(coord.CodeIDInvalid, "renewing a tenure that cannot be", renewErr),
			want(coord.CodeIDInvalid, "forgetting by a tenure that cannot be", forgetErr),
			want(coord.CodeIDInvalid, "releasing a tenure that cannot be", s.Store.Release(ctx, bad)),
		); err != nil {
			return err
		}
	}
	return nil
}

func checkTTLBounds(ctx context.Context, s subject) error {
	for i, ttl := range []time.Duration{coord.MinTTL, coord.MinTTL + time.Millisecond, coord.MaxTTL - time.Millisecond, coord.MaxTTL} {
		g, err := s.Store.Acquire(ctx, s.key(i), strings.Repeat("ö", coord.MaxOwner), ttl)
		if err != nil {
			return fmt.Errorf("acquiring for %v: %w", ttl, err)
		}
		if g.TTL < ttl {
			return fmt.Errorf("%v was granted as %v", ttl, g.TTL)
		}
		if err := s.Store.Release(ctx, g.Tenure); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

func checkTTLHonoured(ctx context.Context, s subject) error {
	g, err := s.borrow(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if err := s.pass(ctx, g.TTL/2); err != nil {
		return err
	}
	if err := s.expectHeld(ctx, s.key(0), "a", 1); err != nil {
		return fmt.Errorf("half of the granted %v later: %w", g.TTL, err)
	}
	return nil
}

func checkRecordsStay(ctx context.Context, s subject) error {
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	if _, err := s.Store.MarkForgotten(ctx, tenure); err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	if err := s.Store.Release(ctx, tenure); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	g, err := s.borrow(ctx, s.key(1), "a", 1)
	if err != nil {
		return err
	}
	if err := s.expire(ctx, 3*g.TTL); err != nil {
		return err
	}
	for n := range 2 {
		if _, err := s.expectRecord(ctx, s.key(n), "a", 1, false); err != nil {
			return err
		}
	}
	return nil
}

func checkCancelled(ctx context.Context, s subject) error {
	tenure, err := s.taken(ctx, s.key(0), "a", 1)
	if err != nil {
		return err
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, acquireErr := s.Store.Acquire(over, s.key(1), "a", s.TTL)
	_, renewErr := s.Store.Renew(over, tenure, s.TTL)
	_, forgetErr := s.Store.MarkForgotten(over, tenure)
	_, _, readErr := s.Store.Read(over, tenure.Key)
	for what, err := range map[string]error{"acquire": acquireErr, "renew": renewErr, "forget": forgetErr, "read": readErr} {
		if err := first(want(coord.CodeLeaseStoreUnavailable, what, err), wantCancelled(what, err)); err != nil {
			return err
		}
	}
	r, err := s.expectRecord(ctx, tenure.Key, "a", 1, true)
	if err != nil || r.ForgottenAt != 0 {
		return fmt.Errorf("afterwards: %+v, %w", r, err)
	}
	return s.expectAbsent(ctx, s.key(1))
}
