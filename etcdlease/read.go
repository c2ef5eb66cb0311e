package etcdlease

import (
	"context"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// The number of records that [Store.List] returns at once.
const (
	DefaultListLimit = 100
	MaxListLimit     = 1000
)

// Read implements [coord.LeaseStore]. It is linearizable.
func (s *Store) Read(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	if err := key.Validate(); err != nil {
		return coord.Record{}, false, err
	}
	if err := s.checkOpen(); err != nil {
		return coord.Record{}, false, fail(ctx, "read", key, err)
	}
	snap, err := s.read(ctx, key)
	if err != nil {
		return coord.Record{}, false, fail(ctx, "read", key, err)
	}
	if snap.epoch == nil {
		return coord.Record{}, false, nil
	}
	return snap.record(key, s.clock.Wall()), true, nil
}

// readAll reads everything about key, as part of a transaction.
func (s *Store) readAll(key coord.Key) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(s.keys.epoch(key)),
		clientv3.OpGet(s.keys.owner(key)),
		clientv3.OpGet(s.keys.floor(key)),
	}
}

func (s *Store) read(ctx context.Context, key coord.Key) (snapshot, error) {
	resp, err := s.txn(ctx, nil, s.readAll(key), nil)
	if err != nil {
		return snapshot{}, err
	}
	return decodeAll(resp.Responses)
}

// decodeAll decodes the answers to readAll.
func decodeAll(rs []*pb.ResponseOp) (snapshot, error) {
	return decode(only(rs[0]), only(rs[1]), only(rs[2]))
}

func only(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// List returns the records of one organization, or of all if organization is
// empty, in the order of their lease keys: at most limit of them
// ([DefaultListLimit] if 0, up to [MaxListLimit]), beginning behind the lease key
// after, which is that of the last record of the page before, or empty. All
// records of a page are of one moment.
func (s *Store) List(ctx context.Context, organization, after string, limit int) ([]coord.Record, error) {
	from, end, err := s.listRange(organization, after)
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = DefaultListLimit
	}
	if limit < 1 || limit > MaxListLimit {
		return nil, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "list", Detail: fmt.Sprintf("the limit must be from 1 to %d", MaxListLimit)}
	}
	if err := s.checkOpen(); err != nil {
		return nil, fail(ctx, "list", coord.Key{}, err)
	}
	records, err := s.list(ctx, from, end, limit)
	return records, fail(ctx, "list", coord.Key{}, err)
}

func (s *Store) listRange(organization, after string) (from, end string, err error) {
	base := s.keys.epochs()
	if organization != "" {
		if err := coord.ValidateOrganization(organization); err != nil {
			return "", "", err
		}
		base += organization + "/"
	}
	from = base
	if after != "" {
		key, err := coord.ParseKey(after)
		if err != nil {
			return "", "", err
		}
		from = max(base, s.keys.epoch(key)+"\x00")
	}
	return from, clientv3.GetPrefixRangeEnd(base), nil
}

func (s *Store) list(ctx context.Context, from, end string, limit int) ([]coord.Record, error) {
	if from >= end {
		return nil, nil
	}
	rctx, cancel := s.request(ctx)
	defer cancel()
	page, err := s.client.Get(rctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(limit)))
	if err != nil || len(page.Kvs) == 0 {
		return nil, err
	}
	first, last := s.keys.keyOf(page.Kvs[0].Key), s.keys.keyOf(page.Kvs[len(page.Kvs)-1].Key)
	at := []clientv3.OpOption{clientv3.WithRev(page.Header.Revision)}
	span := func(kind string) clientv3.Op {
		return clientv3.OpGet(s.keys.prefix+kind+first, append(at, clientv3.WithRange(s.keys.prefix+kind+last+"\x00"))...)
	}
	rest, err := s.txn(ctx, nil, []clientv3.Op{span("owner/"), span("floor/")}, nil)
	if err != nil {
		return nil, err
	}
	owners := s.index(rest.Responses[0], "owner/")
	floors := s.index(rest.Responses[1], "floor/")
	now := s.clock.Wall()
	records := make([]coord.Record, 0, len(page.Kvs))
	for _, kv := range page.Kvs {
		name := s.keys.keyOf(kv.Key)
		key, err := coord.ParseKey(name)
		if err != nil {
			continue // not written by any Store
		}
		snap, err := decode(kv, owners[name], floors[name])
		if err != nil {
			return nil, err
		}
		records = append(records, snap.record(key, now))
	}
	return records, nil
}

func (s *Store) index(r *pb.ResponseOp, kind string) map[string]*mvccpb.KeyValue {
	kvs := r.GetResponseRange().GetKvs()
	byKey := make(map[string]*mvccpb.KeyValue, len(kvs))
	for _, kv := range kvs {
		byKey[strings.TrimPrefix(string(kv.Key), s.keys.prefix+kind)] = kv
	}
	return byKey
}
