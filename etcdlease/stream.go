package etcdlease

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A keepAliveStream carries one request at a time, so an answer belongs to the
// request that was sent last. On the client's own stream nobody can tell which
// request an answer belongs to, nor when that was sent.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

// keepAliveOnce sends one keepalive. A stream that failed or stayed silent is given
// up; one that answered is kept for the next round, because opening one costs an
// authentication where etcd asks for a password.
func (s *Store) keepAliveOnce(ctx context.Context, id clientv3.LeaseID, limit time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stream, err := s.takeStream(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	stop := context.AfterFunc(ctx, stream.cancel)
	resp, err := stream.ask(id)
	if intact := stop() && err == nil; intact {
		s.mu.Lock()
		s.mu.streams = append(s.mu.streams, stream)
		s.mu.Unlock()
	} else {
		stream.cancel()
	}
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	s.observe(resp.Header, 0)
	if resp.TTL <= 0 {
		return 0, errLeaseGone
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// takeStream returns an idle stream, or opens one. Streams outlive the request
// that opens them and end with the Store.
func (s *Store) takeStream(ctx context.Context) (*keepAliveStream, error) {
	s.mu.Lock()
	if n := len(s.mu.streams); n > 0 {
		stream := s.mu.streams[n-1]
		s.mu.streams = s.mu.streams[:n-1]
		s.mu.Unlock()
		return stream, nil
	}
	s.mu.Unlock()
	sctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	client, err := s.keepalives.LeaseKeepAlive(sctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return &keepAliveStream{Lease_LeaseKeepAliveClient: client, cancel: cancel}, nil
}

func (k *keepAliveStream) ask(id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	if err := k.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		// The reason is what the stream ended with, not that it has ended.
		if _, rerr := k.Recv(); rerr != nil {
			err = rerr
		}
		return nil, err
	}
	return k.Recv()
}
