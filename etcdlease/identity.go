package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// An identity is what a Store remembers of the etcd it talks to. etcd's promises
// hold for one history: after another cluster took its place, or after it was
// restored from a backup, epochs that were granted could be granted again.
type identity struct {
	cluster  atomic.Uint64
	revision atomic.Int64 // the greatest that a linearizable answer had
	broken   atomic.Pointer[coord.Error]
}

// observe compares an answer with what is remembered. atLeast is the revision that
// was known before the request was sent, or 0 if the answer need not be newer.
func (s *Store) observe(h *pb.ResponseHeader, atLeast int64) {
	if h == nil {
		return
	}
	if known := s.identity.cluster.Load(); known != h.ClusterId && (known != 0 || !s.identity.cluster.CompareAndSwap(0, h.ClusterId)) {
		s.breakOff(fmt.Sprintf("etcd's cluster id was %x and is %x now", s.identity.cluster.Load(), h.ClusterId))
		return
	}
	if atLeast == 0 {
		return
	}
	if h.Revision < atLeast {
		s.breakOff(fmt.Sprintf("etcd was at revision %d and is at %d now", atLeast, h.Revision))
		return
	}
	for known := s.identity.revision.Load(); known < h.Revision; known = s.identity.revision.Load() {
		if s.identity.revision.CompareAndSwap(known, h.Revision) {
			return
		}
	}
}

// breakOff makes every later call fail, and every tenure that is renewed lost.
func (s *Store) breakOff(why string) {
	err := &coord.Error{
		Code: coord.CodeEpochRolledBack, Op: "lease store", Detail: why,
		Hint: "etcd was replaced, or restored from a backup: raise the epochs with replica raise-epoch, then restart the replicas",
	}
	if s.identity.broken.CompareAndSwap(nil, err) {
		s.log.Error("this is not the etcd that the leases were granted by; everything is fenced", zap.String("why", why))
	}
}

// rolledBack returns the error of a Store that has noticed another etcd.
func (s *Store) rolledBack() error {
	if err := s.identity.broken.Load(); err != nil {
		return err
	}
	return nil
}

// suspect asks for a linearizable answer after one that need not be was older than
// what is known: a member may lag, and etcd may have been restored.
func (s *Store) suspect(ctx context.Context, h *pb.ResponseHeader) error {
	s.observe(h, 0)
	if h.GetRevision() >= s.identity.revision.Load() {
		return s.rolledBack()
	}
	if _, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(s.keys.cluster(), clientv3.WithCountOnly())}, nil); err != nil {
		return err
	}
	return s.rolledBack()
}

// ended turns the refusal of a Store that has noticed another etcd into the end of
// a tenure.
func ended(op string, key coord.Key, err error) error {
	if errors.Is(err, coord.CodeEpochRolledBack) {
		return &coord.Error{Code: coord.CodeLeaseLost, Op: op, Key: key, Err: err}
	}
	return err
}

// recognise compares the cluster with the one that the first Store of the prefix
// wrote down, so that a process without a memory notices a cluster that was made
// from another one's backup. Where that note is missing the latest grant tells. It fails
// if etcd does not say; an etcd that cannot be written to gets no note.
func (s *Store) recognise(ctx context.Context) error {
	id := clusterHex(s.identity.cluster.Load())
	name := s.keys.cluster()
	latest := append(clientv3.WithLastRev(), clientv3.WithPrefix())
	resp, err := s.txn(ctx, []clientv3.Cmp{absent(name)}, []clientv3.Op{clientv3.OpGet(s.keys.epochs(), latest...)}, []clientv3.Op{clientv3.OpGet(name)})
	if err != nil {
		return err
	}
	kv := only(resp.Responses[0])
	switch {
	case !resp.Succeeded:
		if string(kv.Value) != id {
			s.breakOff(fmt.Sprintf("the leases were kept by the etcd cluster %s, and this is %s", kv.Value, id))
		}
		return nil
	case kv != nil:
		snap, err := decode(kv, nil, nil)
		if by := snap.value.Cluster; err == nil && by != "" && by != id {
			s.breakOff(fmt.Sprintf("the latest lease was granted by the etcd cluster %s at revision %d or later, and this is %s", by, snap.value.Reached, id))
			return nil
		}
	}
	// Whoever else writes the note writes the same.
	_, _ = s.txn(ctx, []clientv3.Cmp{absent(name)}, []clientv3.Op{clientv3.OpPut(name, id)}, nil)
	return nil
}

// RaiseEpoch sees to it that the next grant of key has an epoch above the given one,
// and returns the epoch after which it comes. Up to the given one, revisions of earlier
// grants no longer count: [coord.Grant].RaisedTo. It is for an operator whose etcd was
// restored or replaced, works on a Store that refuses everything else for that
// reason, and never lowers anything. It is refused with a [coord.LeaseHeldError]
// while somebody holds the key.
func (s *Store) RaiseEpoch(ctx context.Context, key coord.Key, above coord.Epoch) (coord.Epoch, error) {
	if err := key.Validate(); err != nil {
		return 0, err
	}
	for range maxTries {
		snap, err := s.read(ctx, key)
		if err != nil {
			return 0, fail(ctx, "raise epoch", key, err)
		}
		if snap.owner != nil {
			return 0, &coord.LeaseHeldError{Record: snap.record(key, s.clock.Wall())}
		}
		latest, done, err := s.raiseBase(ctx, key, snap, above)
		if err != nil {
			return 0, fail(ctx, "raise epoch", key, err)
		}
		if done {
			return latest, nil
		}
	}
	return 0, fail(ctx, "raise epoch", key, errContended)
}

// raiseBase writes the base if nothing about the key has changed since snap.
func (s *Store) raiseBase(ctx context.Context, key coord.Key, snap snapshot, above coord.Epoch) (latest coord.Epoch, done bool, _ error) {
	granted := coord.Epoch(0)
	if snap.epoch != nil {
		granted = coord.Epoch(snap.epoch.Version)
	}
	next := snap.floor
	latest = next.Base + granted
	if latest >= above && next.Raised >= above {
		return latest, true, nil
	}
	next.Raised = max(next.Raised, above)
	if latest < above {
		latest, next.Base = above, above-granted
	}
	resp, err := s.txn(ctx,
		[]clientv3.Cmp{absent(s.keys.owner(key)), modified(s.keys.epoch(key), snap.revision()), modified(s.keys.floor(key), snap.floorRev)},
		[]clientv3.Op{clientv3.OpPut(s.keys.floor(key), next.encode())}, nil)
	if err != nil {
		return 0, false, err
	}
	return latest, resp.Succeeded, nil
}

// ConfirmCluster declares that the etcd this Store talks to is the right one,
// although the prefix was written by another. Stores that are opened afterwards
// accept it.
func (s *Store) ConfirmCluster(ctx context.Context) error {
	id := clusterHex(s.identity.cluster.Load())
	_, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpPut(s.keys.cluster(), id)}, nil)
	return fail(ctx, "confirm cluster", coord.Key{}, err)
}
