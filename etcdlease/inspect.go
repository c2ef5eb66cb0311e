package etcdlease

import (
	"context"
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// What [Store.Inspect] says of a lease.
const (
	// StuckUnregistered means that no entry of the registry is the owner's: it has
	// died, or it never registered. The lease still ends by itself.
	StuckUnregistered = "its owner is not in the registry of replicas"
	// StuckForever means that the owner key hangs on no etcd lease. Nobody steals
	// it; an operator ends it with [Store.EndStuck], and the next grant has the next
	// epoch.
	StuckForever = "no etcd lease will ever end it"
)

// Inspect looks at those of records that are held, and returns why they look as if
// nobody would end them. It is for people: a replica that has just died, or has
// just lost its registration, is reported too.
func (s *Store) Inspect(ctx context.Context, records []coord.Record) (map[coord.Key]string, error) {
	stuck, err := s.inspect(ctx, records)
	return stuck, fail(ctx, "inspect", coord.Key{}, err)
}

func (s *Store) inspect(ctx context.Context, records []coord.Record) (map[coord.Key]string, error) {
	registered := make(map[string]bool)
	replicas, err := s.replicas(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range replicas {
		registered[r.ID] = true
	}
	stuck := make(map[coord.Key]string)
	for _, r := range records {
		if !r.Held {
			continue
		}
		if !registered[r.Owner] {
			stuck[r.Key] = StuckUnregistered
		}
	}
	unleased, err := s.unleased(ctx, records)
	for _, key := range unleased {
		stuck[key] = StuckForever
	}
	return stuck, err
}

// unleased returns which of the records' owner keys hang on no etcd lease. Records
// come in the order of their keys, and mostly as one page.
func (s *Store) unleased(ctx context.Context, records []coord.Record) (keys []coord.Key, _ error) {
	if len(records) == 0 {
		return nil, nil
	}
	first, last := s.keys.owner(records[0].Key), s.keys.owner(records[len(records)-1].Key)
	rctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(rctx, first, clientv3.WithRange(last+"\x00"))
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		key, err := coord.ParseKey(string(kv.Key[len(s.keys.prefix+"owner/"):]))
		if err == nil && kv.Lease == 0 {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// EndStuck removes the owner key of key if it hangs on no etcd lease, which nothing
// else would ever remove, and returns the record that it ended. It is for operators,
// and costs the tenant an epoch.
//
// It needs no trust in the owner being dead: a renewal of such a key either fails or
// writes it. So it watches the key for the TTL of the grant, or for the longer one that
// the key itself tells of, and removes it only if nothing wrote it meanwhile. By then the
// owner's fence has passed, if there is an owner. It fails with [coord.LeaseHeldError] if
// the key hangs on a lease, or was written while it was watched, and with
// [coord.CodeLeaseLost] if nobody holds the key.
func (s *Store) EndStuck(ctx context.Context, key coord.Key) (coord.Record, error) {
	if err := key.Validate(); err != nil {
		return coord.Record{}, err
	}
	if err := s.checkOpen(); err != nil {
		return coord.Record{}, fail(ctx, "end stuck lease", key, err)
	}
	record, err := s.endStuck(ctx, key)
	return record, fail(ctx, "end stuck lease", key, err)
}

func (s *Store) endStuck(ctx context.Context, key coord.Key) (coord.Record, error) {
	snap, err := s.read(ctx, key)
	if err != nil {
		return coord.Record{}, err
	}
	switch {
	case snap.owner == nil:
		return coord.Record{}, lost("end stuck lease", key, "nobody holds it")
	case snap.owner.Lease != 0:
		return coord.Record{}, &coord.LeaseHeldError{Record: snap.record(key, s.clock.Wall())}
	}
	if !s.pause(ctx, longestTTL(snap)) {
		return coord.Record{}, ctx.Err()
	}
	owner := s.keys.owner(key)
	resp, err := s.txn(ctx,
		[]clientv3.Cmp{created(owner, snap.owner.CreateRevision), modified(owner, snap.owner.ModRevision), clientv3.Compare(clientv3.LeaseValue(owner), "=", 0)},
		[]clientv3.Op{clientv3.OpDelete(owner)}, s.readAll(key))
	if err != nil {
		return coord.Record{}, err
	}
	if resp.Succeeded {
		return snap.record(key, s.clock.Wall()), nil
	}
	if snap, err = decodeAll(resp.Responses); err != nil {
		return coord.Record{}, err
	}
	if snap.owner == nil {
		return coord.Record{}, lost("end stuck lease", key, "somebody else ended it")
	}
	return coord.Record{}, &coord.LeaseHeldError{Record: snap.record(key, s.clock.Wall())}
}

// longestTTL is how long the owner of snap may believe in its latest renewal: one for
// longer than the grant is written into the owner key only.
func longestTTL(snap snapshot) time.Duration {
	var held grantValue
	_ = json.Unmarshal(snap.owner.Value, &held) // other hands may have written anything
	ttl := max(snap.value.ttl(), held.ttl())
	if ttl <= 0 {
		return coord.MaxTTL // nothing tells of it
	}
	return min(ttl, coord.MaxTTL)
}
