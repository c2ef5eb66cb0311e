package etcdlease

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// Renew implements [coord.LeaseStore]. It shares its keepalive with every other
// call that was made before the keepalive was sent. A tenure whose Release was
// begun is over for Renew, whatever became of the release.
func (s *Store) Renew(ctx context.Context, ten coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	if err := ten.Validate(); err != nil {
		return coord.Grant{}, err
	}
	if err := coord.ValidateTTL(ttl); err != nil {
		return coord.Grant{}, err
	}
	grant, err := s.renew(ctx, ten, ttl)
	if err == nil {
		err = s.rolledBack()
	}
	if err != nil {
		return coord.Grant{}, ended("renew", ten.Key, fail(ctx, "renew", ten.Key, err))
	}
	return grant, nil
}

func (s *Store) renew(ctx context.Context, ten coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	asked := s.clock.Now()
	for range maxTries {
		if err := s.checkOpen(); err != nil {
			return coord.Grant{}, err
		}
		t := s.lookup(ten)
		if t == nil {
			var err error
			if t, err = s.find(ctx, ten); err != nil {
				return coord.Grant{}, err
			}
		}
		placed, err := s.place(ctx, t, ttl, asked)
		if err != nil {
			return coord.Grant{}, err
		}
		if !placed {
			continue
		}
		grant, again, err := s.renewOnce(ctx, t)
		if !again {
			return grant, err
		}
	}
	return coord.Grant{}, errContended
}

// find looks up a tenure that this Store does not know.
func (s *Store) find(ctx context.Context, ten coord.Tenure) (*tenure, error) {
	snap, err := s.read(ctx, ten.Key)
	if err != nil {
		return nil, err
	}
	if !snap.is(ten) {
		return nil, lost("renew", ten.Key, "the latest grant is another one")
	}
	if !snap.live() {
		return nil, lost("renew", ten.Key, "the lease has ended")
	}
	return snap.tenure(ten), nil
}

// place sees to it that t may be renewed and is on a lease of this Store with at
// least ttl. It reports false if somebody moved the key meanwhile.
func (s *Store) place(ctx context.Context, t *tenure, ttl, asked time.Duration) (bool, error) {
	if err := s.checkLive(ctx, t); err != nil {
		return false, err
	}
	s.mu.Lock()
	unsure := t.moving != nil
	fits := t.lease != nil && t.lease.ttl >= ttl
	s.mu.Unlock()
	if unsure {
		return false, s.settleMove(ctx, t)
	}
	if fits {
		return true, nil
	}
	return s.move(ctx, t, ttl, asked)
}

// checkLive refuses a tenure that is over here and removes what is left of it.
func (s *Store) checkLive(ctx context.Context, t *tenure) error {
	now := s.clock.Now()
	s.mu.Lock()
	t.lapsesLocked(now)
	over := t.over
	s.mu.Unlock()
	if over == notOver {
		return nil
	}
	if err := s.remove(ctx, t); err != nil {
		s.wakeJanitor()
	}
	if over == released {
		return lost("renew", t.Key, "the lease was released")
	}
	return lost("renew", t.Key, "the lease was not renewed in time")
}

// renewOnce joins a round of t's lease. It reports again if the key turned out to
// be on another lease.
func (s *Store) renewOnce(ctx context.Context, t *tenure) (_ coord.Grant, again bool, _ error) {
	now := s.clock.Now()
	s.mu.Lock()
	t.inUse++
	l := t.lease
	joined := s.joinLocked(l, t.until-now)
	disputed, disputes := s.mu.rivals[t.Key] > 0, t.disputes
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		t.inUse--
		s.mu.Unlock()
	}()
	r, err := s.await(ctx, joined)
	if err != nil && !isLeaseGone(err) {
		return coord.Grant{}, false, err
	}
	if err == nil {
		_, there := r.keys[s.keys.owner(t.Key)]
		s.mu.Lock()
		disputed = disputed || s.mu.rivals[t.Key] > 0 || t.disputes != disputes
		s.mu.Unlock()
		if there && !disputed {
			return s.extend(ctx, t, r)
		}
	}
	here, confirmErr := s.confirmOn(ctx, t, l)
	switch {
	case confirmErr != nil:
		return coord.Grant{}, false, confirmErr
	case !here:
		return coord.Grant{}, true, nil
	case err != nil:
		return coord.Grant{}, false, err
	}
	return s.extend(ctx, t, r)
}

// confirmOn asks for the owner key itself after l did not seem to carry it, or may
// carry a later tenure's. It reports whether l carries t's, and false if the
// tenure lives elsewhere.
func (s *Store) confirmOn(ctx context.Context, t *tenure, l *sharedLease) (bool, error) {
	snap, err := s.read(ctx, t.Key)
	if err != nil {
		return false, err
	}
	if !snap.grants(t) || !snap.live() {
		s.drop(t)
		return false, lost("renew", t.Key, "the lease has ended")
	}
	if snap.owner.Lease != int64(l.id) {
		s.drop(t)
		return false, nil
	}
	return true, nil
}

// extend moves the end of t to what r earned, unless t ended before r was sent. It
// reports again if t has been replaced: the key that r saw is then a later
// tenure's.
func (s *Store) extend(ctx context.Context, t *tenure, r *round) (coord.Grant, bool, error) {
	s.mu.Lock()
	replaced := s.mu.tenures[t.Key] != t
	if !replaced && t.over == notOver && r.sentAt < t.until {
		t.until = max(t.until, r.sentAt+r.ttl)
		floor := t.floor
		s.mu.Unlock()
		return s.grantOf(t, r.ttl, floor), false, nil
	}
	s.mu.Unlock()
	if replaced {
		return coord.Grant{}, true, nil
	}
	s.end(t, lapsed)
	return coord.Grant{}, false, s.checkLive(ctx, t)
}

// move puts t's owner key onto a lease of this Store with at least ttl: a tenure
// of another Store, or one whose TTL grows. It reports false if somebody else
// moved the key first.
func (s *Store) move(ctx context.Context, t *tenure, ttl, asked time.Duration) (bool, error) {
	l, err := s.reserve(ctx, max(ttl, t.least))
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	mod := t.mod
	s.mu.Unlock()
	owner := s.keys.owner(t.Key)
	value := grantValue{Owner: t.Owner, Lease: leaseHex(l.id), TTL: l.ttl.Milliseconds(), Address: s.opts.Address, GrantedAt: s.clock.Wall().UnixMilli()}
	resp, err := s.txn(ctx,
		append(s.stands(t), modified(owner, mod)),
		[]clientv3.Op{clientv3.OpPut(owner, value.encode(), clientv3.WithLease(l.id))}, nil)
	switch {
	case err != nil && unclear(err):
		s.supervise(t, l, asked)
		return false, err
	case err != nil:
		if isLeaseGone(err) {
			s.retire(l)
		}
		s.free(l)
		return false, err
	case !resp.Succeeded:
		s.free(l)
		s.drop(t)
		return false, nil
	}
	return s.moved(t, l, resp.Header.Revision, asked), nil
}

// moved notes that t's owner key is on l. It reports false if t was dropped while
// the move was under way: then the key is gone, or a later tenure's.
func (s *Store) moved(t *tenure, l *sharedLease, mod int64, asked time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.lease != nil && s.mu.tenures[t.Key] != t {
		l.slots--
		return false
	}
	if t.lease != nil {
		t.lease.slots--
	}
	t.lease, t.mod = l, mod
	t.until = max(t.until, asked+l.ttl)
	s.registerLocked(t)
	return true
}
