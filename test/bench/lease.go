package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

const (
	leaseSamples = 60 // of each side of a round
	leaseWorkers = 64
	leaseTTL     = time.Minute
)

// A leaseBed is an etcd that syncs to disk, a bare client, and a Store whose
// requests are counted.
type leaseBed struct {
	ctx      context.Context
	endpoint string
	client   *clientv3.Client
	leases   *etcdlease.Store
	txns     atomic.Int64
	alives   atomic.Int64
	serial   atomic.Int64 // numbers keys, so that each is used once
	close    func() error
}

func benchLease(ctx context.Context, b *bench) (err error) {
	bed, err := newLeaseBed(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.close()) }()
	for _, step := range []func(*bench) error{
		bed.roundTrips, bed.acquire, bed.acquireAgainstMutex, bed.handover, bed.throughput, bed.keepalives, bed.gate, bed.takeover,
	} {
		if err := step(b); err != nil {
			return err
		}
	}
	return nil
}

func newLeaseBed(ctx context.Context) (*leaseBed, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	bed := &leaseBed{ctx: ctx, endpoint: server.Endpoints()[0]}
	bed.close = func() error { return errors.Join(server.Close(), os.RemoveAll(dir)) }
	if bed.client, err = clientv3.New(clientv3.Config{Endpoints: server.Endpoints()}); err == nil {
		bed.leases, err = bed.open(bed.counting()...)
	}
	if err != nil {
		return nil, errors.Join(err, bed.close())
	}
	bed.close = func() error {
		return errors.Join(bed.leases.Close(), bed.client.Close(), server.Close(), os.RemoveAll(dir))
	}
	return bed, nil
}

func (l *leaseBed) open(dial ...grpc.DialOption) (*etcdlease.Store, error) {
	return etcdlease.Open(l.ctx, etcdlease.Config{
		Endpoints: []string{l.endpoint}, DialOptions: dial, Options: etcdlease.Options{RequestTimeout: 20 * time.Second},
	})
}

// counting counts at the client what is sent.
func (l *leaseBed) counting() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if method == "/etcdserverpb.KV/Txn" {
				l.txns.Add(1)
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, method, opts...)
			if err != nil || method != "/etcdserverpb.Lease/LeaseKeepAlive" {
				return stream, err
			}
			return countedStream{stream, &l.alives}, nil
		}),
	}
}

type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (s countedStream) SendMsg(m any) error {
	s.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

func (l *leaseBed) key() coord.Key {
	key, err := coord.NewKey("bench", fmt.Sprintf("t-%032x", l.serial.Add(1)))
	if err != nil {
		panic(err) // the format is fixed
	}
	return key
}

// roundTrips counts what an acquisition sends when a lease is at hand.
func (l *leaseBed) roundTrips(b *bench) error {
	if err := l.ourAcquire(); err != nil {
		return err
	}
	l.txns.Store(0)
	l.alives.Store(0)
	const n = 20
	for range n {
		if err := l.ourAcquire(); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		what string
		sent int64
	}{{"transactions", l.txns.Load()}, {"parallel keepalives", l.alives.Load()}} {
		b.add(row{
			Name: "lease: " + r.what + " of a warm acquisition", Value: float64(r.sent) / n, Limit: 1, Better: lower,
			Ours: "counted at the client", Reference: "none",
		})
	}
	return nil
}

// bareTxn sends what an acquisition consists of, and nothing around it.
func (l *leaseBed) bareTxn(ctx context.Context, key string, lease clientv3.LeaseID) error {
	owner, epoch := "/bare/owner/"+key, "/bare/epoch/"+key
	value := `{"owner":"bench","nonce":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","lease":"0123456789abcdef","ttl_ms":60000,"granted_at_ms":1700000000000}`
	resp, err := l.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(owner), "=", 0)).Then(
		clientv3.OpPut(epoch, value), clientv3.OpPut(owner, value, clientv3.WithLease(lease)),
		clientv3.OpGet(epoch), clientv3.OpGet("/bare/floor/"+key),
	).Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("the bare transaction found an owner")
	}
	return err
}

// p50 is the median of n single measurements of f.
func p50(n int, f func() (time.Duration, error)) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		times := make([]time.Duration, 0, n)
		for range n {
			d, err := f()
			if err != nil {
				return 0, err
			}
			times = append(times, d)
		}
		return median(times), nil
	}
}

func timed(f func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		began := time.Now()
		err := f()
		return time.Since(began), err
	}
}
