package etcdlease

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	minPoll   = time.Second
	waitRetry = 200 * time.Millisecond
)

// WaitReleased implements [coord.ReleaseWaiter]. It learns of a release from a
// watch. When the watch ends for whatever reason, when what it would have told was
// compacted away, and in any case once in the TTL of the holder but not more often
// than every second, it looks again, so a watch that has gone silent delays it and
// does not defeat it. While etcd cannot be reached it goes on trying; it returns
// [coord.CodeLeaseStoreUnavailable] only if etcd refuses the user or the Store is
// closed.
func (s *Store) WaitReleased(ctx context.Context, key coord.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	for {
		free, err := s.waitOnce(ctx, key)
		switch {
		case free:
			return nil
		case errors.Is(context.Cause(ctx), errClosed):
			return fail(context.Background(), "wait", key, errClosed)
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			continue
		case !unavailable(err) || authProblem(err) || errors.Is(err, errClosed):
			return fail(ctx, "wait", key, err)
		}
		s.pause(ctx, waitRetry)
	}
}

// waitOnce looks whether key is free and, if not, watches it until it is, until
// the watch ends, or until it is time to look again.
func (s *Store) waitOnce(ctx context.Context, key coord.Key) (bool, error) {
	if err := s.checkOpen(); err != nil {
		return false, err
	}
	owner := s.keys.owner(key)
	rctx, cancel := s.request(ctx)
	resp, err := s.client.Get(rctx, owner)
	cancel()
	if err != nil {
		return false, err
	}
	if len(resp.Kvs) == 0 {
		return true, nil
	}
	poll := minPoll
	var value grantValue
	if json.Unmarshal(resp.Kvs[0].Value, &value) == nil {
		poll = max(poll, value.ttl())
	}
	// Ends when it is time to look again.
	wctx, cancel := context.WithTimeout(ctx, poll)
	defer cancel()
	deleted := func(events []*clientv3.Event) bool { return len(events) > 0 }
	return s.watch(wctx, owner, deleted, clientv3.WithRev(resp.Header.Revision+1), clientv3.WithFilterPut())
}
