package etcdlease

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// WatchEnds implements [coord.EndWatcher]. Renewals of a tenure of this Store that has
// ended in etcd are refused from then on without asking etcd. What happens while a watch
// breaks off and etcd compacts its history is missed. It returns ctx's error, or
// [coord.CodeLeaseStoreUnavailable] if etcd refuses the user or the Store is closed.
func (s *Store) WatchEnds(ctx context.Context, notify func(coord.Key, coord.Revision)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	next := int64(0) // the revision to go on from; 0 for now
	for {
		err := s.watchEndsOnce(ctx, &next, notify)
		switch {
		case errors.Is(context.Cause(ctx), errClosed) || errors.Is(err, errClosed):
			return fail(context.Background(), "watch ends", coord.Key{}, errClosed)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (!unavailable(err) || authProblem(err)):
			return fail(ctx, "watch ends", coord.Key{}, err)
		}
		s.pause(ctx, waitRetry)
	}
}

func (s *Store) watchEndsOnce(ctx context.Context, next *int64, notify func(coord.Key, coord.Revision)) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	owners := s.keys.prefix + "owner/"
	from := *next
	*next = 0 // if etcd has compacted it away
	_, err := s.watch(ctx, owners, func(events []*clientv3.Event) bool {
		for _, e := range events {
			*next = e.Kv.ModRevision + 1
			key, err := coord.ParseKey(strings.TrimPrefix(string(e.Kv.Key), owners))
			if err == nil {
				notify(key, s.noteEnd(key, e.PrevKv))
			}
		}
		return false
	}, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithPrevKV(), clientv3.WithRev(from))
	return err
}

// noteEnd marks the tenure whose owner key was deleted, if it is this Store's, as over.
func (s *Store) noteEnd(key coord.Key, owner *mvccpb.KeyValue) coord.Revision {
	if owner == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.mu.tenures[key]; t != nil && t.revision == owner.CreateRevision && t.over == notOver {
		t.over = lapsed
	}
	return coord.Revision(owner.CreateRevision)
}
