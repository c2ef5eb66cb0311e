package etcdlease

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// BindCopies declares that the owners of this prefix keep their copies in the store
// that id names. The first caller decides; a different id is refused with
// [coord.CodeOptionsInvalid]: with copies of its own, each replica would go on from
// a state of its own, and every handoff would lose what the other had.
func (s *Store) BindCopies(ctx context.Context, id string) error {
	name := s.keys.copies()
	resp, err := s.txn(ctx, []clientv3.Cmp{absent(name)}, []clientv3.Op{clientv3.OpPut(name, id)}, []clientv3.Op{clientv3.OpGet(name)})
	if err != nil {
		return fail(ctx, "bind copies", coord.Key{}, err)
	}
	if resp.Succeeded {
		return nil
	}
	if kv := only(resp.Responses[0]); kv == nil || string(kv.Value) != id {
		return &coord.Error{
			Code: coord.CodeOptionsInvalid, Op: "bind copies",
			Detail: "the replicas on this etcd prefix keep their copies in another store than this one",
			Hint:   "use the same --copies as they do; a store that is moved takes its store-id.json along; if it is gone for good, delete " + name + " in etcd",
		}
	}
	return nil
}
