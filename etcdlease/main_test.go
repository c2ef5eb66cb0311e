package etcdlease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// endpoints are those of the etcd that all tests share. Each test has a prefix of
// its own.
var endpoints []string

func TestMain(m *testing.M) {
	if where := os.Getenv(racerEnv); where != "" {
		os.Exit(race(where))
	}
	os.Exit(run(m))
}

// externalEtcd names the variable with an endpoint of an etcd to run the shared tests
// on, such as one of another version.
const externalEtcd = "LEASEHOLD_TEST_ETCD"

func run(m *testing.M) int {
	if endpoint := os.Getenv(externalEtcd); endpoint != "" {
		endpoints = []string{endpoint}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "etcdlease")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	server, err := embedetcd.Start(context.Background(), embedetcd.Config{Dir: dir, UnsafeNoSync: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	endpoints = server.Endpoints()
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

const (
	txnMethod       = "/etcdserverpb.KV/Txn"
	keepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive"
	watchMethod     = "/etcdserverpb.Watch/Watch"
)

// A wire is what a test does to the connection between a Store and etcd.
type wire struct {
	mu     sync.Mutex
	counts map[string]int
	// unary is asked about each unary request before it is sent.
	unary func(method string, req any) fault
	// answered runs after a unary request was answered, before the Store hears it.
	answered func(method string)
	// stream runs before a stream is opened; an error keeps it from opening.
	stream func(ctx context.Context, method string) error
	// swallow keeps a message of a stream from being sent, without an error.
	swallow func(method string) bool
	// received runs after a message of a stream was received.
	received func(method string)
}

type fault int

const (
	noFault fault = iota
	loseRequest
	loseReply
)

var errCut = status.Error(codes.Unavailable, "cut by the test")

func (w *wire) set(f func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

func (w *wire) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[method]
}

func (w *wire) options() []grpc.DialOption {
	w.counts = make(map[string]int)
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			w.mu.Lock()
			w.counts[method]++
			hook := w.unary
			w.mu.Unlock()
			f := noFault
			if hook != nil {
				f = hook(method, req)
			}
			if f == loseRequest {
				return errCut
			}
			err := invoke(ctx, method, req, reply, cc, opts...)
			w.mu.Lock()
			answered := w.answered
			w.mu.Unlock()
			if answered != nil {
				answered(method)
			}
			if f == loseReply {
				return errCut
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			w.mu.Lock()
			hook := w.stream
			w.mu.Unlock()
			if hook != nil {
				if err := hook(ctx, method); err != nil {
					return nil, err
				}
			}
			s, err := open(ctx, desc, cc, method, opts...)
			return &tappedStream{ClientStream: s, wire: w, method: method}, err
		}),
	}
}

type tappedStream struct {
	grpc.ClientStream
	wire   *wire
	method string
}

func (s *tappedStream) SendMsg(m any) error {
	s.wire.mu.Lock()
	s.wire.counts[s.method]++
	swallow := s.wire.swallow
	s.wire.mu.Unlock()
	if swallow != nil && swallow(s.method) {
		return nil
	}
	return s.ClientStream.SendMsg(m)
}

func (s *tappedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.wire.mu.Lock()
	hook := s.wire.received
	s.wire.mu.Unlock()
	if hook != nil {
		hook(s.method)
	}
	return err
}

// prefixes numbers the tests, so that a test that runs again finds nothing of its
// earlier run.
var prefixes struct {
	sync.Mutex
	of map[*testing.T]string
}

func prefix(t *testing.T) string {
	prefixes.Lock()
	defer prefixes.Unlock()
	if prefixes.of == nil {
		prefixes.of = make(map[*testing.T]string)
	}
	if prefixes.of[t] == "" {
		prefixes.of[t] = fmt.Sprintf("/test-%d/", len(prefixes.of))
	}
	return prefixes.of[t]
}

// patient is the time of a request where none is to fail, on a slow machine neither;
// impatient is that of the tests which wait for one to fail.
const (
	patient   = 30 * time.Second
	impatient = 3 * time.Second
)

// open makes a patient Store with the test's prefix. Its wire may be nil.
func open(t *testing.T, w *wire, change ...func(*etcdlease.Config)) *etcdlease.Store {
	t.Helper()
	cfg := etcdlease.Config{Endpoints: endpoints, Options: etcdlease.Options{Prefix: prefix(t), RequestTimeout: patient}}
	if w != nil {
		cfg.DialOptions = w.options()
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := etcdlease.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func timeout(d time.Duration) func(*etcdlease.Config) {
	return func(c *etcdlease.Config) { c.RequestTimeout = d }
}

// etcd is a client that no fault touches.
func etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	return clientOf(t, endpoints)
}

func clientOf(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func key(t *testing.T, n int) coord.Key {
	t.Helper()
	k, err := coord.NewKey("acme", fmt.Sprintf("t-%032x", n))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func acquire(t *testing.T, s *etcdlease.Store, k coord.Key, owner string, ttl time.Duration) coord.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), k, owner, ttl)
	if err != nil {
		t.Fatalf("acquire %v for %s: %v", k, owner, err)
	}
	return g
}

func read(t *testing.T, s *etcdlease.Store, k coord.Key) coord.Record {
	t.Helper()
	r, ok, err := s.Read(t.Context(), k)
	if err != nil || !ok {
		t.Fatalf("read %v: %v, %v", k, ok, err)
	}
	return r
}

func wantCode(t *testing.T, err error, code coord.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
}

// released waits until nobody holds k, and fails if that takes longer than d.
func released(t *testing.T, s *etcdlease.Store, k coord.Key, d time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began := time.Now()
	if err := s.WaitReleased(ctx, k); err != nil {
		t.Fatalf("%v is not released after %v: %v", k, d, err)
	}
	return time.Since(began)
}

// get returns the value of an etcd key, "" if absent, and its lease.
func get(t *testing.T, c *clientv3.Client, k string) (string, int64) {
	t.Helper()
	resp, err := c.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return "", 0
	}
	return string(resp.Kvs[0].Value), resp.Kvs[0].Lease
}

func countKeys(t *testing.T, c *clientv3.Client, under string) int64 {
	t.Helper()
	resp, err := c.Get(t.Context(), under, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Count
}
