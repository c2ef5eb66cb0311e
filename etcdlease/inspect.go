package etcdlease

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// What [Store.Inspect] says of a lease.
const (
	// StuckUnregistered means that no entry of the registry is the owner's: it has
	// died, or it never registered. The lease still ends by itself.
	StuckUnregistered = "its owner is not in the registry of replicas"
	// StuckForever means that the owner key hangs on no etcd lease. Nobody steals
	// it; an operator who knows that its owner is dead deletes the key, and the
	// next grant has the next epoch.
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
