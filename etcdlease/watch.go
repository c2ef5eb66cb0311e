package etcdlease

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// streamHeader tells watch streams apart: watches whose headers are equal share a
// stream, and a stream has the token that it was opened with for as long as it
// lasts.
const streamHeader = "leasehold-stream"

// watch tells of events until tell returns true, until ctx ends, in which case it
// returns false and no error, or until the watch ends. A watch that etcd refuses
// because the token of its stream has expired ends with errStaleToken, and the next
// one has a stream of its own.
func (s *Store) watch(ctx context.Context, name string, tell func([]*clientv3.Event) bool, opts ...clientv3.OpOption) (bool, error) {
	stream := s.watchStream.Load()
	wctx := metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), streamHeader, strconv.FormatUint(stream, 10))
	for resp := range s.client.Watch(wctx, name, opts...) {
		err := resp.Err()
		switch {
		case ctx.Err() != nil:
			return false, nil
		case err != nil && staleToken(err):
			s.watchStream.CompareAndSwap(stream, stream+1)
			return false, errStaleToken
		case err != nil:
			return false, err
		}
		if tell(resp.Events) {
			return true, nil
		}
	}
	if ctx.Err() != nil {
		return false, nil
	}
	return false, errNoAnswer
}

// staleToken reports whether etcd no longer knows the token of a stream, which says
// nothing about the password. For a watch etcd gives the reason as text only.
func staleToken(err error) bool {
	for _, stale := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision} {
		if errors.Is(rpctypes.Error(err), rpctypes.Error(stale)) || strings.HasSuffix(err.Error(), rpctypes.ErrorDesc(stale)) {
			return true
		}
	}
	return false
}
