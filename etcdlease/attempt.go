package etcdlease

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// recoverAttempt settles an attempt whose answer was lost, while its caller still
// waits. It returns the grant if there is one. With an error the attempt is void,
// or has been left to the janitor, and its slot is none of the caller's concern.
func (s *Store) recoverAttempt(ctx context.Context, a *attempt, cause error) (snapshot, bool, error) {
	if ctx.Err() == nil {
		snap, applied, err := s.settle(ctx, a)
		switch {
		case err == nil && applied:
			return snap, true, nil
		case err == nil:
			s.void(a)
			return snapshot{}, false, cause
		}
		cause = errors.Join(cause, err)
	}
	s.leave(a)
	return snapshot{}, false, cause
}

// settle decides what became of a. If a was applied and its grant still stands it
// returns the grant; if not, a cannot be applied any more once settle has returned
// without an error.
func (s *Store) settle(ctx context.Context, a *attempt) (snapshot, bool, error) {
	resp, err := s.txn(ctx,
		[]clientv3.Cmp{s.isLatest(a.key, a.value)},
		s.readAll(a.key),
		[]clientv3.Op{s.voidOp(a)})
	if isLeaseGone(err) {
		return snapshot{}, false, nil // and what hung on the lease with it
	}
	if err != nil || !resp.Succeeded {
		return snapshot{}, false, err
	}
	snap, err := decodeAll(resp.Responses)
	return snap, snap.live(), err
}

// abort makes sure that a grants nothing: neither now nor later.
func (s *Store) abort(ctx context.Context, a *attempt) error {
	remove := []clientv3.Op{clientv3.OpDelete(s.keys.owner(a.key))}
	_, err := s.txn(ctx, []clientv3.Cmp{s.isLatest(a.key, a.value)}, remove, []clientv3.Op{s.voidOp(a)})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		// Without space nothing can be made void, but a grant can be removed.
		if resp, derr := s.txn(ctx, []clientv3.Cmp{s.isLatest(a.key, a.value)}, remove, nil); derr == nil && resp.Succeeded {
			err = nil
		}
	}
	if err != nil && !isLeaseGone(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, pending := s.mu.attempts[a.nonce]; pending {
		delete(s.mu.attempts, a.nonce)
		s.concludeLocked(a)
		a.lease.slots--
	}
	return nil
}

// void notes that a granted nothing and frees its slot.
func (s *Store) void(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.concludeLocked(a)
	a.lease.slots--
}

// concludeLocked notes that it is known what became of a.
func (s *Store) concludeLocked(a *attempt) {
	if s.mu.rivals[a.key]--; s.mu.rivals[a.key] == 0 {
		delete(s.mu.rivals, a.key)
	}
	if t := s.mu.tenures[a.key]; t != nil {
		t.disputes++
	}
}

// isLatest compares by the value that a grant wrote: while epoch/K holds it, no later
// grant was made, so the owner key, if there is one, is this grant's.
func (s *Store) isLatest(key coord.Key, value string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(s.keys.epoch(key)), "=", value)
}

// voidOp hangs the mark on the lease that the attempt would use: without the
// lease the attempt fails by itself.
func (s *Store) voidOp(a *attempt) clientv3.Op {
	return clientv3.OpPut(s.keys.void(a.nonce), "", clientv3.WithLease(a.lease.id))
}

// leave hands an attempt to the janitor, which aborts it.
func (s *Store) leave(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.attempts[a.nonce] = a
	s.wakeJanitor()
}

// abortPending aborts the attempts on key that nobody waits for, so that a replica
// does not find the door shut by itself.
func (s *Store) abortPending(ctx context.Context, key coord.Key) error {
	s.mu.Lock()
	var pending []*attempt
	for _, a := range s.mu.attempts {
		if a.key == key {
			pending = append(pending, a)
		}
	}
	s.mu.Unlock()
	for _, a := range pending {
		if err := s.abort(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
