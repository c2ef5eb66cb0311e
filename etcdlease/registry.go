package etcdlease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// ReplicaTTL is how long a replica that has died stays in the registry.
const ReplicaTTL = 10 * time.Second

// A Replica is an entry of the registry.
type Replica struct {
	ID      string    // the owner name under which the replica acquires
	Address string    // where other replicas reach it; may be empty
	Started time.Time // on the replica's calendar, to the millisecond
}

type replicaValue struct {
	Address string `json:"address,omitempty"`
	Started int64  `json:"started_ms"`
}

// Register enters r into the registry and keeps it there until Close. It returns
// once the entry is written; if it cannot be, nothing goes on in the background.
// Registering an id again replaces its entry.
func (s *Store) Register(ctx context.Context, r Replica) error {
	if err := coord.ValidateOwner(r.ID); err != nil {
		return err
	}
	if why := checkText(r.Address, maxAddressLength); why != "" {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "register", Detail: "Address " + why}
	}
	l, err := s.writeReplica(ctx, r)
	if err != nil {
		return fail(ctx, "register", coord.Key{}, err)
	}
	s.mu.Lock()
	s.mu.replicas[r.ID] = l
	s.mu.Unlock()
	if !s.spawn(func() { s.keepReplica(r, l) }) {
		return fail(ctx, "register", coord.Key{}, errClosed)
	}
	return nil
}

// writeReplica writes r's entry onto a lease of its own. An entry whose write is unclear ends with its lease.
func (s *Store) writeReplica(ctx context.Context, r Replica) (*sharedLease, error) {
	value, err := json.Marshal(replicaValue{Address: r.Address, Started: r.Started.UnixMilli()})
	if err != nil {
		return nil, err
	}
	l, err := s.newRegistration()
	if err != nil {
		return nil, err
	}
	if err := s.confirm(ctx, l); err != nil {
		return nil, err
	}
	rctx, cancel := s.request(ctx)
	defer cancel()
	if _, err := s.client.Put(rctx, s.keys.replica(r.ID), string(value), clientv3.WithLease(l.id)); err != nil {
		return nil, err
	}
	return l, nil
}

// newRegistration asks for a lease that no tenure shares, so that revoking it ends
// the entry and nothing else. It stays without slots: Close revokes it.
func (s *Store) newRegistration() (*sharedLease, error) {
	l := &sharedLease{ready: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.spawnLocked(func() { s.grant(l, wholeSeconds(ReplicaTTL)) }) {
		return nil, errClosed
	}
	s.mu.leases = append(s.mu.leases, l)
	return l, nil
}

// keepReplica keeps r's entry alive, and writes it again when its lease was lost,
// until a later registration replaces it.
func (s *Store) keepReplica(r Replica, l *sharedLease) {
	for s.pause(s.ctx, ReplicaTTL/3) {
		if !s.registeredOn(r.ID, l) {
			return
		}
		_, err := s.await(s.ctx, s.join(l))
		if isLeaseGone(err) {
			var again *sharedLease
			if again, err = s.writeReplica(s.ctx, r); err == nil {
				l = s.replaceRegistration(r.ID, l, again)
				err = s.rewriteWants(s.ctx, r.ID)
			}
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("the registration of this replica could not be renewed", zap.String("replica", r.ID), zap.Error(err))
		}
	}
}

func (s *Store) registeredOn(id string, l *sharedLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.replicas[id] == l
}

// replaceRegistration notes that id's entry moved from one lease to another, and
// returns the new one.
func (s *Store) replaceRegistration(id string, from, to *sharedLease) *sharedLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.replicas[id] == from {
		s.mu.replicas[id] = to
	}
	return to
}

// Replicas returns the registered replicas in the order of their ids. It is a
// hint: an entry outlives its replica by up to [ReplicaTTL].
func (s *Store) Replicas(ctx context.Context) ([]Replica, error) {
	replicas, err := s.replicas(ctx)
	return replicas, fail(ctx, "list replicas", coord.Key{}, err)
}

func (s *Store) replicas(ctx context.Context) ([]Replica, error) {
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.keys.replicas(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	replicas := make([]Replica, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		var v replicaValue
		if err := json.Unmarshal(kv.Value, &v); err != nil {
			return nil, fmt.Errorf("the value of %s: %w", kv.Key, err)
		}
		id := string(kv.Key[len(s.keys.replicas()):])
		replicas = append(replicas, Replica{ID: id, Address: v.Address, Started: time.UnixMilli(v.Started)})
	}
	return replicas, nil
}
