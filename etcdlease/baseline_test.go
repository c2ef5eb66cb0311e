package etcdlease_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/etcdlease"
)

var cycles = flag.Int("cycles", 60, "acquire-wait-cancel cycles of TestCyclesLeaveNothing")

// gauge reads a metric of the etcd in this process.
func gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// An inventory is what must not grow.
type inventory struct {
	goroutines int
	watches    float64
	leases     int
}

func take(t *testing.T, c *clientv3.Client) inventory {
	t.Helper()
	leases, err := c.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return inventory{runtime.NumGoroutine(), gauge(t, "etcd_debugging_mvcc_watcher_total"), len(leases.Leases)}
}

// cycle waits in vain for what another Store holds, gives up, and takes and leaves
// a key of its own.
func cycle(t *testing.T, s *etcdlease.Store, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.WaitReleased(ctx, key(t, 0)); !errors.Is(err, context.Canceled) {
			t.Errorf("waited: %v", err)
		}
	})
	g, err := s.Acquire(ctx, key(t, 1+n%8), "a", time.Minute)
	cancel()
	wg.Wait()
	if err == nil {
		err = s.Release(t.Context(), g.Tenure)
	}
	if err != nil {
		t.Error(err)
	}
}

// What the transport keeps for a while, whatever was done on it. The most of it is one
// watch stream, which is there or not at the moment of the look: four goroutines of
// etcd's client, three of the server in this process, and a watch that the server has
// not cleared away. The next watch uses that stream, so there is never a second one.
const (
	idleGoroutines = 15
	idleWatches    = 3
)

// Goroutines, watches and leases are back to what they were, however many cycles
// there were.
func TestCyclesLeaveNothing(t *testing.T) {
	c := etcd(t)
	acquire(t, open(t, nil), key(t, 0), "holder", 10*time.Minute)
	s := open(t, nil)
	for n := range 20 {
		cycle(t, s, n) // opens what stays open
	}
	before := take(t, c)
	for n := range *cycles {
		cycle(t, s, n)
	}
	after := take(t, c)
	for range 1200 {
		if after.goroutines <= before.goroutines+idleGoroutines && after.watches <= before.watches+idleWatches && after.leases <= before.leases {
			return
		}
		time.Sleep(50 * time.Millisecond) // what was cancelled is ending
		after = take(t, c)
	}
	t.Errorf("from %+v to %+v in %d cycles", before, after, *cycles)
}
