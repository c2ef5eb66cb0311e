package etcdlease

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// Acquire implements [coord.LeaseStore]. With a lease at hand it costs one
// transaction, and one keepalive in parallel. If the answer of the transaction is
// lost and ctx is still alive, the same grant is taken over; otherwise it is
// undone.
func (s *Store) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	if err := validateAcquire(key, owner, ttl); err != nil {
		return coord.Grant{}, err
	}
	grant, err := s.acquire(ctx, key, owner, ttl)
	return grant, fail(ctx, "acquire", key, err)
}

func validateAcquire(key coord.Key, owner string, ttl time.Duration) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if err := coord.ValidateOwner(owner); err != nil {
		return err
	}
	return coord.ValidateTTL(ttl)
}

func (s *Store) acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	began := s.clock.Now()
	for range maxTries {
		if err := errors.Join(s.checkOpen(), ctx.Err()); err != nil {
			return coord.Grant{}, err // nothing was sent, so nothing is unclear
		}
		if err := s.abortPending(ctx, key); err != nil {
			return coord.Grant{}, errors.Join(errUnsettled, err)
		}
		// A tenure of ours that is over may hold the key still. It goes first: asking
		// afterwards could miss it, because the janitor removes it as well.
		if err := s.removeOver(ctx, key); err != nil {
			return coord.Grant{}, err
		}
		grant, err := s.acquireOnce(ctx, key, owner, ttl, began)
		if !isLeaseGone(err) {
			return grant, err
		}
	}
	return coord.Grant{}, errContended
}

// acquireOnce runs the transaction on one shared lease. It fails with errLeaseGone
// if that lease had ended.
func (s *Store) acquireOnce(ctx context.Context, key coord.Key, owner string, ttl, began time.Duration) (coord.Grant, error) {
	l, err := s.reserve(ctx, ttl)
	if err != nil {
		return coord.Grant{}, err
	}
	a := s.newAttempt(key, owner, l)
	cover := s.cover(l, began)
	snap, granted, err := s.attempt(ctx, a)
	if err != nil && unclear(err) {
		snap, granted, err = s.recoverAttempt(ctx, a, err)
		if err != nil {
			return coord.Grant{}, err // the slot belongs to the attempt now, or is free
		}
	}
	switch {
	case isLeaseGone(err):
		s.retire(l)
		s.void(a)
		return coord.Grant{}, errLeaseGone
	case err != nil:
		s.void(a)
		return coord.Grant{}, err
	case !granted:
		s.void(a)
		return coord.Grant{}, heldError(key, snap, s.clock.Wall())
	}
	t := &tenure{
		Tenure:   coord.Tenure{Key: key, Owner: owner, Epoch: snap.epochNumber()},
		revision: snap.revision(), value: a.value, mod: snap.revision(), lease: l, until: began + l.ttl, floor: snap.floor.Forgotten, raised: snap.floor.Raised,
	}
	s.mu.Lock()
	s.concludeLocked(a)
	s.registerLocked(t)
	s.mu.Unlock()
	return s.report(ctx, t, cover)
}

// report returns the grant of t once cover, if any, has proved that t's lease
// lasts long enough, and hands t back otherwise.
func (s *Store) report(ctx context.Context, t *tenure, cover *round) (coord.Grant, error) {
	ttl := t.lease.ttl
	if err := s.rolledBack(); err != nil {
		s.end(t, released)
		s.wakeJanitor()
		return coord.Grant{}, err
	}
	if cover != nil {
		r, err := s.await(ctx, cover)
		if err != nil {
			s.end(t, released)
			s.wakeJanitor()
			if isLeaseGone(err) {
				// The key went with its lease; another lease may serve.
				return coord.Grant{}, errLeaseGone
			}
			return coord.Grant{}, errors.Join(errHandedBack, err)
		}
		ttl = min(ttl, r.ttl)
	}
	return s.grantOf(t, ttl, t.floor), nil
}

func (s *Store) grantOf(t *tenure, ttl time.Duration, floor coord.Epoch) coord.Grant {
	return coord.Grant{
		Tenure: t.Tenure, Revision: coord.Revision(t.revision), TTL: ttl,
		LeaseUntil: s.clock.Wall().Add(ttl), ForgottenAt: floor, RaisedTo: t.raised,
	}
}

// heldError says who holds the key. A refusal without an owner key comes from a
// void attempt, and the call may be made again.
func heldError(key coord.Key, snap snapshot, now time.Time) error {
	if snap.owner == nil {
		return errContended
	}
	return &coord.LeaseHeldError{Record: snap.record(key, now)}
}

// An attempt is one acquisition transaction.
type attempt struct {
	key   coord.Key
	nonce string
	value string // what the transaction writes; no other attempt writes the same
	lease *sharedLease
}

func (s *Store) newAttempt(key coord.Key, owner string, l *sharedLease) *attempt {
	nonce := rand.Text()
	value := grantValue{
		Owner: owner, Nonce: nonce, Lease: leaseHex(l.id), TTL: l.ttl.Milliseconds(),
		Address: s.opts.Address, GrantedAt: s.clock.Wall().UnixMilli(),
		Cluster: clusterHex(s.identity.cluster.Load()), Reached: s.identity.revision.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rivals[key]++
	return &attempt{key: key, nonce: nonce, value: value.encode(), lease: l}
}

// attempt sends a once and reports whether etcd granted it.
func (s *Store) attempt(ctx context.Context, a *attempt) (snapshot, bool, error) {
	epoch, owner := s.keys.epoch(a.key), s.keys.owner(a.key)
	resp, err := s.txn(ctx,
		[]clientv3.Cmp{absent(owner), absent(s.keys.void(a.nonce))},
		[]clientv3.Op{
			clientv3.OpPut(epoch, a.value),
			clientv3.OpPut(owner, a.value, clientv3.WithLease(a.lease.id)),
			clientv3.OpGet(epoch),
			clientv3.OpGet(s.keys.floor(a.key)),
		},
		s.readAll(a.key))
	if err != nil {
		return snapshot{}, false, err
	}
	var snap snapshot
	if resp.Succeeded {
		snap, err = decode(only(resp.Responses[2]), nil, only(resp.Responses[3]))
	} else {
		snap, err = decodeAll(resp.Responses)
	}
	return snap, resp.Succeeded, err
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

func created(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", revision)
}

func modified(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}
