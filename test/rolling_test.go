package test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

var (
	rollingTenants = flag.Int("rolling-tenants", 300, "tenants that clients append to while every replica is restarted")
	rollingRounds  = flag.Int("rolling-rounds", 2, "how often every replica is restarted")
)

// A crew is the replicas of a fleet, of which one at a time may be down.
type crew struct {
	mu struct {
		sync.Mutex
		members []*replica
	}
}

func newCrew(members ...*replica) *crew {
	c := &crew{}
	c.mu.members = members
	return c
}

// member returns the n-th replica, counted round and round.
func (c *crew) member(n int) *replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.members[n%len(c.mu.members)]
}

func (c *crew) replace(n int, r *replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.members[n] = r
}

// A clerk is a client that appends to its own tenants, one event after the other, each
// through another replica, and knows what was acknowledged.
type clerk struct {
	number int
	crew   *crew
	keys   []coord.Key
	acks   map[coord.Key][]timedAck
	count  atomic.Int64 // acknowledged so far
	cured  int          // by a retry
}

type timedAck struct {
	id    string
	epoch uint64
	at    time.Time
}

func hireClerks(n int, crew *crew, keys []coord.Key) []*clerk {
	clerks := make([]*clerk, n)
	for i := range clerks {
		clerks[i] = &clerk{number: i, crew: crew, acks: make(map[coord.Key][]timedAck)}
	}
	for i, key := range keys {
		clerks[i%n].keys = append(clerks[i%n].keys, key)
	}
	return clerks
}

// work appends until ctx ends, and then finishes what it has begun. An event is given up
// on when that many attempts failed; that ends the work.
func (c *clerk) work(ctx context.Context, attempts int) error {
	for i := 0; ctx.Err() == nil; i++ {
		key := c.keys[i%len(c.keys)]
		if err := c.append(key, i, attempts); err != nil {
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

func (c *clerk) append(key coord.Key, i, attempts int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id := fmt.Sprintf("clerk-%d-%d", c.number, i)
	var failures []string
	for attempt := range attempts {
		r := c.crew.member(c.number + i + attempt)
		got, err := r.do(ctx, "POST", tenantPath(key)+"/events", note(id))
		if err == nil && ok(got) {
			var a ack
			if err := json.Unmarshal(got.body, &a); err != nil {
				return err
			}
			c.acks[key] = append(c.acks[key], timedAck{id, a.Epoch, time.Now()})
			c.count.Add(1)
			if attempt > 0 {
				c.cured++
			}
			return nil
		}
		failures = append(failures, fmt.Sprintf("%s: %s, %v", r.url, got, err))
		if !pause(ctx, 20*time.Millisecond) {
			break
		}
	}
	return fmt.Errorf("%s of %s was not acknowledged: %q", id, key, failures)
}

// awaitProgress returns when each clerk has more acknowledged than before the call.
func awaitProgress(t *testing.T, clerks []*clerk, more int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, c := range clerks {
		for goal := c.count.Load() + more; c.count.Load() < goal; {
			if t.Failed() || !pause(ctx, 5*time.Millisecond) {
				t.Fatalf("clerk %d comes to a stop at %d", c.number, c.count.Load())
			}
		}
	}
}

// restart stops a member as an operator does and starts its successor.
func (f *fleet) restart(c *crew, n int, name string, args ...string) {
	f.t.Helper()
	r := c.member(n)
	r.signal(syscall.SIGTERM)
	if code := r.wait(patience); code != 0 {
		f.t.Fatalf("a replica under load exited with %d:\n%s", code, r.out)
	}
	next := f.start(name, args...)
	c.replace(n, next)
}

// RO-8, RE-3, RE-6: every replica of three is restarted, twice over, under appends: no
// acknowledged event is missing, none is there twice, and no append fails that one
// retry does not cure.
func TestRollingRestart(t *testing.T) {
	f := newFleet(t)
	c := newCrew(f.start("r0", longLease...), f.start("r1", longLease...), f.start("r2", longLease...))
	keys := numberedKeys(t, *rollingTenants)
	clerks := hireClerks(20, c, keys)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() { cancel(); working.Wait() }()
	for _, clerk := range clerks {
		working.Go(func() {
			if err := clerk.work(ctx, 2); err != nil {
				t.Error(err)
			}
		})
	}
	awaitProgress(t, clerks, int64(*rollingTenants/20)) // every tenant is open somewhere
	began := time.Now()
	for round := range *rollingRounds {
		for n := range 3 {
			f.restart(c, n, fmt.Sprintf("r%d-%d", n, round+1), longLease...)
			awaitProgress(t, clerks, 3)
		}
	}
	took := time.Since(began)
	cancel()
	working.Wait()

	total, cured := 0, 0
	for _, clerk := range clerks {
		total, cured = total+int(clerk.count.Load()), cured+clerk.cured
		forEach(t, clerk.keys, func(key coord.Key) error { return wantAcked(c.member(0), key, clerk.acks[key]) })
	}
	t.Logf("%d appends to %d tenants; %d of them were cured by a retry; %d restarts took %v", total, len(keys), cured, 3**rollingRounds, took.Round(time.Millisecond))
}

// wantAcked checks that the ledger holds every acknowledged event, once, in the order of
// the acknowledgements, and nothing else.
func wantAcked(r *replica, key coord.Key, acks []timedAck) error {
	want := make([]string, len(acks))
	for i, a := range acks {
		want[i] = a.id
	}
	if got := r.idemKeys(key); !slices.Equal(got, want) {
		return fmt.Errorf("the ledger holds %v, acknowledged were %v", got, want)
	}
	return nil
}
