package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
)

func (l *leaseBed) ourAcquire() error {
	_, err := l.leases.Acquire(l.ctx, l.key(), "bench", leaseTTL)
	return err
}

func (l *leaseBed) acquire(b *bench) error {
	lease, err := l.client.Grant(l.ctx, int64(10*leaseTTL/time.Second))
	if err != nil {
		return err
	}
	return b.ratio("lease: acquire, uncontended, p50", 1.15,
		side{"etcdlease", p50(leaseSamples, timed(l.ourAcquire))},
		side{"a bare transaction", p50(leaseSamples, timed(func() error { return l.bareTxn(l.ctx, l.key().String(), lease.ID) }))})
}

func (l *leaseBed) acquireAgainstMutex(b *bench) error {
	mutex := func() (time.Duration, error) {
		began := time.Now()
		session, err := concurrency.NewSession(l.client, concurrency.WithTTL(int(leaseTTL/time.Second)))
		if err != nil {
			return 0, err
		}
		m := concurrency.NewMutex(session, "/mutex/"+l.key().String())
		err = m.Lock(l.ctx)
		took := time.Since(began)
		return took, errors.Join(err, session.Close())
	}
	return b.ratio("lease: acquire, against etcd's mutex, p50", 0.65,
		side{"etcdlease", p50(leaseSamples, timed(l.ourAcquire))}, side{"NewSession and Mutex.Lock", p50(leaseSamples, mutex)})
}

// handover measures from a release to the moment when one who waited holds the key.
func (l *leaseBed) handover(b *bench) error {
	waiter, err := l.open()
	if err != nil {
		return err
	}
	defer waiter.Close()
	if _, err := waiter.Acquire(l.ctx, l.key(), "waiter", leaseTTL); err != nil { // its lease is at hand
		return err
	}
	lease, err := l.client.Grant(l.ctx, int64(10*leaseTTL/time.Second))
	if err != nil {
		return err
	}
	other, err := clientv3.New(clientv3.Config{Endpoints: []string{l.endpoint}})
	if err != nil {
		return err
	}
	defer other.Close()
	return b.ratio("lease: from release to the waiting replica's grant, p50", 1.25,
		side{"etcdlease", p50(leaseSamples/2, func() (time.Duration, error) { return l.ourHandover(waiter) })},
		side{"delete, watch, transaction", p50(leaseSamples/2, func() (time.Duration, error) { return l.bareHandover(other, lease.ID) })})
}

func (l *leaseBed) ourHandover(waiter interface {
	coord.LeaseStore
	coord.ReleaseWaiter
}) (time.Duration, error) {
	grant, err := l.leases.Acquire(l.ctx, l.key(), "bench", leaseTTL)
	if err != nil {
		return 0, err
	}
	held := make(chan error, 1)
	go func() {
		err := waiter.WaitReleased(l.ctx, grant.Key)
		if err == nil {
			_, err = waiter.Acquire(l.ctx, grant.Key, "waiter", leaseTTL)
		}
		held <- err
	}()
	time.Sleep(5 * time.Millisecond) // its watch stands
	began := time.Now()
	if err := l.leases.Release(l.ctx, grant.Tenure); err != nil {
		return 0, err
	}
	err = <-held
	return time.Since(began), err
}

func (l *leaseBed) bareHandover(waiter *clientv3.Client, lease clientv3.LeaseID) (time.Duration, error) {
	key := l.key().String()
	if err := l.bareTxn(l.ctx, key, lease); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	watch := waiter.Watch(ctx, "/bare/owner/"+key, clientv3.WithFilterPut())
	held := make(chan error, 1)
	go func() {
		<-watch
		held <- l.bareTxn(l.ctx, key, lease)
	}()
	time.Sleep(5 * time.Millisecond)
	began := time.Now()
	if _, err := l.client.Delete(l.ctx, "/bare/owner/"+key); err != nil {
		return 0, err
	}
	err := <-held
	return time.Since(began), err
}

// together runs f n times by leaseWorkers workers.
func together(n int, f func() error) error {
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	errs := make([]error, leaseWorkers)
	var wg sync.WaitGroup
	for i := range leaseWorkers {
		wg.Go(func() {
			for range work {
				errs[i] = errors.Join(errs[i], f())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (l *leaseBed) throughput(b *bench) error {
	lease, err := l.client.Grant(l.ctx, int64(10*leaseTTL/time.Second))
	if err != nil {
		return err
	}
	const n = 4000
	ours := timed(func() error { return together(n, l.ourAcquire) })
	bare := timed(func() error {
		return together(n, func() error { return l.bareTxn(l.ctx, l.key().String(), lease.ID) })
	})
	// The time of the reference over ours is our rate over the reference's.
	if err := b.ratio("", 0.85, side{"bare transactions, 4,000 in", bare}, side{"etcdlease, 4,000 in", ours}); err != nil {
		return err
	}
	r := &b.rows[len(b.rows)-1]
	r.Name, r.Better, r.Ours, r.Reference = "lease: acquisitions per second, 64 workers", higher, r.Reference, r.Ours
	return nil
}

// keepalives counts what it takes to renew 10,000 tenants once.
func (l *leaseBed) keepalives(b *bench) error {
	store, err := l.open(l.counting()...)
	if err != nil {
		return err
	}
	defer store.Close()
	const n = 10_000
	grants := make(chan coord.Grant, n)
	if err := together(n, func() error {
		g, err := store.Acquire(l.ctx, l.key(), "many", coord.MaxTTL)
		grants <- g
		return err
	}); err != nil {
		return err
	}
	close(grants)
	l.alives.Store(0)
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for g := range grants {
		wg.Go(func() {
			_, err := store.Renew(l.ctx, g.Tenure, coord.MaxTTL)
			errs <- err
		})
	}
	wg.Wait()
	for range n {
		err = errors.Join(err, <-errs)
	}
	b.add(row{
		Name: "lease: keepalives to renew 10,000 tenants once", Value: float64(l.alives.Load()), Limit: 12, Better: lower,
		Ours: "all renewals called at once", Reference: "none",
	})
	return err
}

func (l *leaseBed) gate(b *bench) error {
	lease, err := fencing.Acquire(l.ctx, memlease.New(coord.SystemClock()), l.key(), "gate", fencing.LeaseOptions{TTL: coord.MaxTTL})
	if err != nil {
		return err
	}
	for _, g := range []struct {
		name  string
		limit float64
		check func() error
	}{{"per row", 60, lease.CheckRead}, {"at begin and commit", 400, lease.Check}} {
		result := testing.Benchmark(func(tb *testing.B) {
			for range tb.N {
				if err := g.check(); err != nil {
					tb.Fatal(err)
				}
			}
		})
		b.add(row{Name: "gate: " + g.name, Value: float64(result.T.Nanoseconds()) / float64(result.N), Limit: g.limit, Better: lower, Unit: "ns", Ours: "fencing.Lease", Reference: "none"})
		b.add(row{Name: "gate: allocations " + g.name, Value: testing.AllocsPerRun(1000, func() { _ = g.check() }), Better: lower, Ours: "fencing.Lease", Reference: "none"})
	}
	return nil
}
