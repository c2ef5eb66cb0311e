package etcdlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// One transaction and one keepalive per acquisition with a lease at hand.
func TestAcquireIsOneTransaction(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	acquire(t, s, key(t, 1), "a", ttl)
	w.set(func(w *wire) { clear(w.counts) })
	acquire(t, s, key(t, 2), "a", ttl)
	w.set(func(w *wire) {
		if w.counts[txnMethod] != 1 || w.counts[keepAliveMethod] > 1 || len(w.counts) > 2 {
			t.Errorf("an acquisition took %v", w.counts)
		}
	})
}

// An acquisition onto a lease that is there already is covered by a whole TTL.
func TestWarmAcquireExtendsTheLease(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil), etcd(t)
	const ttl, half = 12 * time.Second, 6 // seconds
	acquire(t, s, key(t, 1), "a", ttl)
	_, lease := get(t, c, prefix(t)+"owner/"+key(t, 1).String())
	waitRemaining(t, c, lease, half)
	acquire(t, s, key(t, 2), "a", ttl)
	if _, second := get(t, c, prefix(t)+"owner/"+key(t, 2).String()); second != lease {
		t.Fatal("the second key has a lease of its own")
	}
	resp, err := c.TimeToLive(t.Context(), clientv3.LeaseID(lease))
	if err != nil || resp.TTL <= half {
		t.Errorf("after the acquisition the lease has %v s left, %v", resp, err)
	}
}

func waitRemaining(t *testing.T, c *clientv3.Client, lease, seconds int64) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		resp, err := c.TimeToLive(t.Context(), clientv3.LeaseID(lease))
		if err != nil {
			t.Fatal(err)
		}
		if resp.TTL <= seconds {
			return
		}
	}
}

// If the keepalive fails the key is handed back, and no grant is reported.
func TestUncoveredGrantIsHandedBack(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, other := open(t, w, timeout(impatient)), open(t, nil)
	acquire(t, s, key(t, 1), "a", ttl)
	w.set(func(w *wire) {
		w.stream = func(_ context.Context, method string) error {
			if method == keepAliveMethod {
				return errCut
			}
			return nil
		}
	})
	_, err := s.Acquire(t.Context(), key(t, 2), "a", ttl)
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	released(t, other, key(t, 2), soon)
	if r := read(t, other, key(t, 1)); !r.Held {
		t.Error("the neighbour went too")
	}
}

// A key that nobody renews is over although its etcd lease lives on.
func TestKeyNotRenewedIsOver(t *testing.T) {
	t.Parallel()
	s, other, c := open(t, nil), open(t, nil), etcd(t)
	const ttl = 4 * time.Second
	began := time.Now()
	lapsing := acquire(t, s, key(t, 1), "a", ttl)
	kept := acquire(t, s, key(t, 2), "a", ttl)
	_, lease1 := get(t, c, prefix(t)+"owner/"+key(t, 1).String())
	_, lease2 := get(t, c, prefix(t)+"owner/"+key(t, 2).String())
	if lease1 != lease2 {
		t.Fatal("the keys do not share a lease")
	}
	stop := keepRenewing(t, s, kept.Tenure, ttl)
	defer stop()
	released(t, other, key(t, 1), soon)
	if took := time.Since(began); took < ttl {
		t.Errorf("over after %v", took)
	}
	wantCode(t, renewErr(t, s, lapsing.Tenure, ttl), coord.CodeLeaseLost)
	if g := acquire(t, other, key(t, 1), "b", ttl); g.Epoch != 2 {
		t.Errorf("granted %+v", g)
	}
	stop()
	if r := read(t, s, key(t, 2)); !r.Held || r.Epoch != 1 {
		t.Errorf("the neighbour is %+v", r)
	}
}

func keepRenewing(t *testing.T, s *etcdlease.Store, ten coord.Tenure, d time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			if _, err := s.Renew(t.Context(), ten, d); err != nil {
				t.Errorf("renew the neighbour: %v", err)
			}
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// A renewal that arrives while a keepalive is in flight does not use that one, and
// all that arrive share the next.
func TestRenewalUsesAKeepaliveSentAfterItAsked(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	g := acquire(t, s, key(t, 1), "a", ttl)
	inFlight, answer := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(inFlight); <-answer })
	w.set(func(w *wire) {
		clear(w.counts)
		w.received = func(method string) {
			if method == keepAliveMethod {
				first()
			}
		}
	})
	var wg sync.WaitGroup
	renew := func() {
		if _, err := s.Renew(t.Context(), g.Tenure, ttl); err != nil {
			t.Error(err)
		}
	}
	wg.Go(renew)
	<-inFlight
	for range 5 {
		wg.Go(renew)
	}
	etcdlease.WaitForRenewals(t.Context(), s, key(t, 1), 6)
	close(answer)
	wg.Wait()
	if n := w.count(keepAliveMethod); n != 2 {
		t.Errorf("%d keepalives were sent, want 2", n)
	}
}

func TestLeasesFillUp(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil, func(c *etcdlease.Config) { c.KeysPerLease = 2 }), etcd(t)
	leases := make(map[int64]int)
	for n := range 5 {
		acquire(t, s, key(t, n), "a", ttl)
		_, lease := get(t, c, prefix(t)+"owner/"+key(t, n).String())
		leases[lease]++
	}
	if len(leases) != 3 {
		t.Errorf("5 keys, two to a lease, are spread as %v", leases)
	}
}

// A lease that ended while nothing was held on it is replaced without anyone
// noticing, whether this process has noticed or not.
func TestEndedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil), etcd(t)
	g := acquire(t, s, key(t, 1), "a", ttl)
	_, lease := get(t, c, prefix(t)+"owner/"+key(t, 1).String())
	if err := s.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	if g := acquire(t, s, key(t, 1), "a", ttl); g.Epoch != 2 {
		t.Errorf("granted %+v", g)
	}
}

// What an operator does to etcd directly ends a tenure at its next renewal.
func TestOperatorEndsATenure(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil), etcd(t)
	deleted, revoked, kept := acquire(t, s, key(t, 1), "a", ttl), acquire(t, s, key(t, 2), "a", 2*ttl), acquire(t, s, key(t, 3), "a", ttl)
	if _, err := c.Delete(t.Context(), prefix(t)+"owner/"+key(t, 1).String()); err != nil {
		t.Fatal(err)
	}
	_, lease := get(t, c, prefix(t)+"owner/"+key(t, 2).String())
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, renewErr(t, s, deleted.Tenure, ttl), coord.CodeLeaseLost)
	wantCode(t, renewErr(t, s, revoked.Tenure, 2*ttl), coord.CodeLeaseLost)
	if err := renewErr(t, s, kept.Tenure, ttl); err != nil {
		t.Error(err)
	}
}

// A renewal may ask for a longer TTL than the lease it shares has.
func TestRenewForLonger(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	const short = 3 * time.Second
	g := acquire(t, s, key(t, 1), "a", short)
	longer, err := s.Renew(t.Context(), g.Tenure, ttl)
	if err != nil || longer.TTL != ttl || longer.Epoch != 1 || longer.Revision != g.Revision {
		t.Fatalf("renewed as %+v, %v", longer, err)
	}
	ctx := t.Context()
	timer := time.NewTimer(2 * short)
	defer timer.Stop()
	<-timer.C
	if r, _, err := s.Read(ctx, key(t, 1)); err != nil || !r.Held {
		t.Errorf("after the shorter TTL: %+v, %v", r, err)
	}
	if err := s.Release(ctx, g.Tenure); err != nil {
		t.Error(err)
	}
}

// Another Store renews and releases a tenure by its owner's name.
func TestTenureOfAnotherStore(t *testing.T) {
	t.Parallel()
	first, second := open(t, nil), open(t, nil)
	const ttl = 4 * time.Second
	g := acquire(t, first, key(t, 1), "a", ttl)
	neighbour := acquire(t, first, key(t, 2), "a", ttl)
	stop := keepRenewing(t, second, g.Tenure, ttl)
	// The first Store believes that the key lapsed; it must leave it alone.
	released(t, second, key(t, 2), soon)
	wantCode(t, renewErr(t, first, neighbour.Tenure, ttl), coord.CodeLeaseLost)
	stop()
	if r := read(t, first, key(t, 1)); !r.Held || r.Epoch != 1 {
		t.Fatalf("recorded %+v", r)
	}
	if err := renewErr(t, first, g.Tenure, ttl); err != nil {
		t.Errorf("renew by the first again: %v", err)
	}
	if err := second.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	wantCode(t, renewErr(t, first, g.Tenure, ttl), coord.CodeLeaseLost)
	wantCode(t, renewErr(t, second, g.Tenure, ttl), coord.CodeLeaseLost)
}

func TestClose(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	s := open(t, nil)
	held := acquire(t, s, key(t, 1), "a", ttl)
	idle := acquire(t, s, key(t, 2), "a", 2*ttl)
	_, heldLease := get(t, c, prefix(t)+"owner/"+key(t, 1).String())
	_, idleLease := get(t, c, prefix(t)+"owner/"+key(t, 2).String())
	if err := s.Release(t.Context(), idle.Tenure); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if resp, err := c.TimeToLive(t.Context(), clientv3.LeaseID(idleLease)); err != nil || resp.TTL != -1 {
		t.Errorf("the idle lease is %v, %v", resp, err)
	}
	if resp, err := c.TimeToLive(t.Context(), clientv3.LeaseID(heldLease)); err != nil || resp.TTL <= 0 {
		t.Errorf("the lease of a tenure is %v, %v", resp, err)
	}
	wantCode(t, renewErr(t, s, held.Tenure, ttl), coord.CodeLeaseStoreUnavailable)
	_, err := s.Acquire(t.Context(), key(t, 3), "a", ttl)
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	wantCode(t, s.WaitReleased(t.Context(), key(t, 1)), coord.CodeLeaseStoreUnavailable)
	wantCode(t, s.Register(t.Context(), etcdlease.Replica{ID: "a"}), coord.CodeLeaseStoreUnavailable)
	var ce *coord.Error
	if _, _, err := s.Read(t.Context(), key(t, 1)); !errors.As(err, &ce) {
		t.Errorf("got %v", err)
	}
}

// A replica's tenants that renew at about the same time share a keepalive.
func TestRenewalsGather(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	const n = 200
	var grants [n]coord.Grant
	for i := range n {
		grants[i] = acquire(t, s, key(t, i), "a", 10*time.Minute)
	}
	w.set(func(w *wire) { clear(w.counts) })
	var wg sync.WaitGroup
	for _, g := range grants {
		wg.Go(func() {
			if _, err := s.Renew(t.Context(), g.Tenure, 10*time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if sent := w.count(keepAliveMethod); sent > n/20 {
		t.Errorf("%d renewals took %d keepalives", n, sent)
	}
}
