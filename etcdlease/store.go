package etcdlease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

var (
	_ coord.LeaseStore    = (*Store)(nil)
	_ coord.ReleaseWaiter = (*Store)(nil)
	_ coord.Auditor       = (*Store)(nil)
	_ coord.WantStore     = (*Store)(nil)
	_ coord.BatchRenewer  = (*Store)(nil)
)

// A Store keeps leases in etcd. It is safe for concurrent use.
//
// Its calls fail with [coord.CodeLeaseStoreUnavailable] when etcd cannot be asked
// or does not answer within [Options.RequestTimeout], when its space quota is used
// up and when it refuses the user; the error's Hint says what an operator can do.
// When the caller's context ended, that error is the cause.
type Store struct {
	client     *clientv3.Client
	keepalives pb.LeaseClient
	ownsClient bool
	opts       Options
	keys       layout
	clock      coord.Clock
	log        *zap.Logger
	identity   identity

	// watchStream is the header of the watches to come, see watch.
	watchStream atomic.Uint64

	// ctx is the parent of every request that serves no single caller; it ends
	// with Close.
	ctx       context.Context
	cancel    context.CancelFunc
	wake      chan struct{} // one slot: the janitor has something to do
	wg        sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	mu struct {
		sync.Mutex
		closed bool
		// tenures holds the latest tenure of each key that this Store granted or
		// took over, until it is known to be over.
		tenures map[coord.Key]*tenure
		// attempts holds acquisitions by nonce that nobody waits for any more and
		// that are not settled.
		attempts map[string]*attempt
		// rivals counts, by key, the attempts of this Store of which it is not known
		// what became of them.
		rivals  map[coord.Key]int
		leases  []*sharedLease
		streams []*keepAliveStream // idle ones
		// replicas holds the lease of each registration.
		replicas map[string]*sharedLease
		// wants holds the requests that were not withdrawn, by etcd key.
		wants map[string]coord.Want
	}
}

// New makes a Store on a client that stays the caller's: close the Store first,
// then the client. A nil opts stands for the defaults. It talks to nobody yet.
func New(client *clientv3.Client, opts *Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	s := &Store{
		client:     client,
		keepalives: clientv3.RetryLeaseClient(client),
		opts:       o,
		keys:       layout{prefix: o.Prefix},
		clock:      o.Clock,
		log:        o.Logger,
		wake:       make(chan struct{}, 1),
	}
	s.mu.tenures = make(map[coord.Key]*tenure)
	s.mu.replicas = make(map[string]*sharedLease)
	s.mu.wants = make(map[string]coord.Want)
	s.mu.attempts = make(map[string]*attempt)
	s.mu.rivals = make(map[coord.Key]int)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.spawn(s.janitor)
	return s, nil
}

// Close stops the Store's work, ends what it knows to be over, and revokes its
// etcd leases that carry nothing, its registration among them. It releases no
// tenure: those that were not released end when their TTL has passed. It takes
// twice [Options.RequestTimeout] at most, returns what could not be cleaned up
// for people to read, and may be called more than once. Afterwards every call
// fails with [coord.CodeLeaseStoreUnavailable].
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.mu.closed = true
		s.mu.Unlock()
		s.cancel()
		s.wg.Wait()
		ctx, cancel := s.request(context.Background())
		if failed, err := s.sweep(ctx); err != nil {
			s.log.Warn("leases that are over were not ended; they end with their TTL", zap.Int("leases", failed), zap.Error(err))
		}
		cancel()
		ctx, cancel = s.request(context.Background())
		defer cancel()
		s.closeErr = fail(ctx, "close", coord.Key{}, s.revokeIdle(ctx))
		if s.ownsClient {
			s.closeErr = errors.Join(s.closeErr, s.client.Close())
		}
	})
	return s.closeErr
}

// spawn runs f in a goroutine that Close waits for. It reports false, and runs
// nothing, if the Store is closed.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spawnLocked(f)
}

func (s *Store) spawnLocked(f func()) bool {
	if s.mu.closed {
		return false
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
	return true
}

// checkOpen fails if the Store is closed, or has noticed that etcd is another one.
func (s *Store) checkOpen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return errClosed
	}
	return s.rolledBack()
}

// request bounds one request to etcd.
func (s *Store) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opts.RequestTimeout)
}

// txn runs one transaction within one request's time.
func (s *Store) txn(ctx context.Context, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	known := s.identity.revision.Load()
	resp, err := s.client.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
	if err == nil {
		s.observe(resp.Header, known)
	}
	return resp, err
}

// pause waits for d on the Store's clock and reports false if ctx ended first.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
