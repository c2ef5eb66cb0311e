package etcdlease

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// Release implements [coord.LeaseStore]. When it fails the Store goes on removing
// the key in the background, and the tenure counts as over here.
func (s *Store) Release(ctx context.Context, ten coord.Tenure) error {
	if err := ten.Validate(); err != nil {
		return err
	}
	return ended("release", ten.Key, fail(ctx, "release", ten.Key, s.release(ctx, ten)))
}

func (s *Store) release(ctx context.Context, ten coord.Tenure) (err error) {
	if err := s.checkOpen(); err != nil {
		return err
	}
	t := s.lookup(ten)
	if t != nil {
		// The janitor takes over when this call has failed, and not before.
		done := s.use(t)
		defer func() {
			done()
			if err != nil {
				s.wakeJanitor()
			}
		}()
		s.end(t, released)
	} else if t, err = s.findHeld(ctx, ten); err != nil || t == nil {
		return err
	}
	resp, err := s.removeNoted(ctx, ten, s.stands(t), s.readAll(ten.Key))
	if err != nil {
		return err
	}
	s.drop(t)
	if resp.Succeeded {
		return nil
	}
	snap, err := decodeAll(resp.Responses)
	if err == nil && !snap.is(ten) {
		return lost("release", ten.Key, "the latest grant is another one")
	}
	return err
}

// findHeld looks up a tenure that this Store does not know, and returns nil if it is the
// latest one and over.
func (s *Store) findHeld(ctx context.Context, ten coord.Tenure) (*tenure, error) {
	snap, err := s.read(ctx, ten.Key)
	switch {
	case err != nil:
		return nil, err
	case !snap.is(ten):
		return nil, lost("release", ten.Key, "the latest grant is another one")
	case !snap.live():
		return nil, nil
	}
	return snap.tenure(ten), nil
}

// stands compares the owner key with t's, so that whatever depends on it happens within t.
func (s *Store) stands(t *tenure) []clientv3.Cmp {
	return []clientv3.Cmp{created(s.keys.owner(t.Key), t.revision), s.isLatest(t.Key, t.value)}
}

// MarkForgotten implements [coord.LeaseStore]. It may be repeated after any error.
func (s *Store) MarkForgotten(ctx context.Context, ten coord.Tenure) (coord.Epoch, error) {
	if err := ten.Validate(); err != nil {
		return 0, err
	}
	if err := s.checkOpen(); err != nil {
		return 0, ended("forget", ten.Key, fail(ctx, "forget", ten.Key, err))
	}
	floor, err := s.markForgotten(ctx, ten)
	if err == nil {
		err = s.rolledBack()
	}
	if err != nil {
		return 0, ended("forget", ten.Key, fail(ctx, "forget", ten.Key, err))
	}
	return floor, nil
}

func (s *Store) markForgotten(ctx context.Context, ten coord.Tenure) (coord.Epoch, error) {
	for range maxTries {
		snap, err := s.readHeld(ctx, ten)
		if err != nil || snap.floor.Forgotten >= ten.Epoch {
			return snap.floor.Forgotten, err
		}
		done, err := s.raiseFloor(ctx, ten, snap)
		if err != nil && unclear(err) && ctx.Err() == nil {
			// What counts is what is written, by whichever request.
			if snap, rerr := s.readHeld(ctx, ten); rerr == nil && snap.floor.Forgotten >= ten.Epoch {
				done, err = true, nil
			}
		}
		if err != nil {
			return 0, err
		}
		if done {
			if t := s.lookup(ten); t != nil {
				s.mu.Lock()
				t.floor = max(t.floor, ten.Epoch)
				s.mu.Unlock()
			}
			return ten.Epoch, nil
		}
	}
	return 0, errContended
}

// readHeld reads the key of a tenure and refuses one that is not held.
func (s *Store) readHeld(ctx context.Context, ten coord.Tenure) (snapshot, error) {
	now := s.clock.Now()
	t := s.lookup(ten)
	if t != nil {
		s.mu.Lock()
		over := t.over != notOver || now >= t.until
		s.mu.Unlock()
		if over {
			return snapshot{}, lost("forget", ten.Key, "the lease has ended")
		}
	}
	snap, err := s.read(ctx, ten.Key)
	if err != nil {
		return snapshot{}, err
	}
	if !snap.is(ten) || !snap.live() || t != nil && !snap.grants(t) {
		return snapshot{}, lost("forget", ten.Key, "the lease is not held by this tenure")
	}
	return snap, nil
}

// raiseFloor writes the floor if the tenure still holds the key and nobody wrote
// the floor since snap was read. What an operator wrote stays as it is.
func (s *Store) raiseFloor(ctx context.Context, ten coord.Tenure, snap snapshot) (bool, error) {
	value := snap.floor
	value.Forgotten, value.At = ten.Epoch, s.clock.Wall().UnixMilli()
	floor := s.keys.floor(ten.Key)
	resp, err := s.txn(ctx,
		append(s.stands(snap.tenure(ten)), modified(floor, snap.floorRev)),
		[]clientv3.Op{clientv3.OpPut(floor, value.encode())}, nil)
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}
