package etcdlease

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

type wantValue struct {
	Address string `json:"address,omitempty"`
	Since   int64  `json:"since_ms"`
}

// Want implements [coord.WantStore] on behalf of a replica that this Store has
// registered; any other asker is refused with [coord.CodeOptionsInvalid]. The request
// stands until withdraw is called, the Store is closed, or the replica has died and
// its registration has ended. After an error nothing stands, unless etcd cannot be
// reached at all.
func (s *Store) Want(ctx context.Context, key coord.Key, asker string) (withdraw func(ctx context.Context) error, _ error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := coord.ValidateOwner(asker); err != nil {
		return nil, err
	}
	if err := s.checkOpen(); err != nil {
		return nil, fail(ctx, "want", key, err)
	}
	w := coord.Want{Key: key, Asker: asker, Address: s.opts.Address, Since: s.clock.Wall()}
	name := s.keys.want(key, asker)
	s.mu.Lock()
	registered := s.mu.replicas[asker] != nil
	if _, asked := s.mu.wants[name]; !asked && registered {
		s.mu.wants[name] = w
	}
	s.mu.Unlock()
	if !registered {
		return nil, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "want", Key: key, Detail: "the asker is not registered here"}
	}
	withdraw = func(ctx context.Context) error { return fail(ctx, "withdraw", key, s.withdraw(ctx, name)) }
	if err := s.writeWant(ctx, w); err != nil {
		return nil, errors.Join(fail(ctx, "want", key, err), s.withdraw(context.WithoutCancel(ctx), name))
	}
	return withdraw, nil
}

// writeWant hangs w on the lease of its asker's registration.
func (s *Store) writeWant(ctx context.Context, w coord.Want) error {
	raw, err := json.Marshal(wantValue{Address: w.Address, Since: w.Since.UnixMilli()})
	if err != nil {
		return err
	}
	s.mu.Lock()
	l := s.mu.replicas[w.Asker]
	s.mu.Unlock()
	name := s.keys.want(w.Key, w.Asker)
	put := clientv3.OpPut(name, string(raw), clientv3.WithLease(l.id))
	_, err = s.txn(ctx, []clientv3.Cmp{absent(name)}, []clientv3.Op{put}, nil)
	return err
}

// rewriteWants writes an asker's requests again after its registration was lost.
func (s *Store) rewriteWants(ctx context.Context, asker string) error {
	s.mu.Lock()
	var lost []coord.Want
	for _, w := range s.mu.wants {
		if w.Asker == asker {
			lost = append(lost, w)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, w := range lost {
		errs = append(errs, s.writeWant(ctx, w))
	}
	return errors.Join(errs...)
}

func (s *Store) withdraw(ctx context.Context, name string) error {
	s.mu.Lock()
	delete(s.mu.wants, name)
	s.mu.Unlock()
	ctx, cancel := s.request(ctx)
	defer cancel()
	_, err := s.client.Delete(ctx, name)
	return err
}

// Wants implements [coord.WantStore].
func (s *Store) Wants(ctx context.Context, key coord.Key) ([]coord.Want, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := s.checkOpen(); err != nil {
		return nil, fail(ctx, "list requests", key, err)
	}
	rctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(rctx, s.keys.want(key, ""), clientv3.WithPrefix())
	if err != nil {
		return nil, fail(ctx, "list requests", key, err)
	}
	var wants []coord.Want
	for _, kv := range resp.Kvs {
		if w, ok := s.decodeWant(kv); ok {
			wants = append(wants, w)
		}
	}
	return wants, nil
}

func (s *Store) decodeWant(kv *mvccpb.KeyValue) (coord.Want, bool) {
	organization, rest, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.keys.wants()), "/")
	tenant, asker, _ := strings.Cut(rest, "/")
	key, err := coord.NewKey(organization, tenant)
	var v wantValue
	if err != nil || json.Unmarshal(kv.Value, &v) != nil {
		return coord.Want{}, false // not written by any Store
	}
	return coord.Want{Key: key, Asker: asker, Address: v.Address, Since: time.UnixMilli(v.Since)}, true
}

// WatchWants implements [coord.WantStore]. It sees every request that stands for a
// few seconds, whatever happens to its watch. It returns ctx's error, or
// [coord.CodeLeaseStoreUnavailable] if etcd refuses the user or the Store is closed.
func (s *Store) WatchWants(ctx context.Context, notify func(coord.Want)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	seen := make(map[string]int64) // mod revision by key
	for {
		err := s.watchWantsOnce(ctx, seen, notify)
		switch {
		case errors.Is(context.Cause(ctx), errClosed) || errors.Is(err, errClosed):
			return fail(context.Background(), "watch requests", coord.Key{}, errClosed)
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			continue
		case !unavailable(err) || authProblem(err):
			return fail(ctx, "watch requests", coord.Key{}, err)
		}
		s.pause(ctx, waitRetry)
	}
}

// watchWantsOnce lists the requests and follows them until the watch ends or it is
// time to list again.
func (s *Store) watchWantsOnce(ctx context.Context, seen map[string]int64, notify func(coord.Want)) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	rctx, cancel := s.request(ctx)
	resp, err := s.client.Get(rctx, s.keys.wants(), clientv3.WithPrefix())
	cancel()
	if err != nil {
		return err
	}
	tell := func(kv *mvccpb.KeyValue) {
		if w, ok := s.decodeWant(kv); ok && seen[string(kv.Key)] != kv.ModRevision {
			seen[string(kv.Key)] = kv.ModRevision
			notify(w)
		}
	}
	standing := make(map[string]bool, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		standing[string(kv.Key)] = true
		tell(kv)
	}
	for name := range seen {
		if !standing[name] {
			delete(seen, name)
		}
	}
	// Ends when it is time to list again.
	wctx, cancel := context.WithTimeout(ctx, ReplicaTTL/2)
	defer cancel()
	_, err = s.watch(wctx, s.keys.wants(), func(events []*clientv3.Event) bool {
		for _, e := range events {
			tell(e.Kv)
		}
		return false
	}, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1), clientv3.WithFilterDelete())
	return err
}
