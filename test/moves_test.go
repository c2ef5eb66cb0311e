package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// RO-8, RO-18: tenants move to and fro between named replicas, many times, under
// appends: none is missing, none there twice, and no append fails that one retry does
// not cure.
func TestMovesToAndFro(t *testing.T) {
	const moves = 15
	f := newFleet(t)
	c := newCrew(f.start("a", longLease...), f.start("b", longLease...), f.start("c", longLease...))
	keys := numberedKeys(t, 3)
	clerks := hireClerks(len(keys), c, keys)
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
	ids := []string{c.member(0).id(), c.member(1).id(), c.member(2).id()}
	awaitProgress(t, clerks, 3)
	forEach(t, keys, func(key coord.Key) error {
		for i := range moves {
			owner, asked := c.member(0).state(key).Owner, c.member(i) // whoever is asked passes it on
			to := ids[i%3]
			if to == owner {
				to = ids[(i+1)%3]
			}
			got, err := asked.do(ctx, "POST", tenantPath(key)+"/handoff", map[string]string{"to": to})
			var moved struct {
				Flushed   bool
				To        string
				NextEpoch uint64 `json:"next_epoch"`
			}
			if err != nil || got.status != 200 || json.Unmarshal(got.body, &moved) != nil {
				return fmt.Errorf("move %d to %s: %s, %v", i, to, got, err)
			}
			if now := c.member(0).state(key); !moved.Flushed || moved.NextEpoch != now.Epoch || now.Owner != to {
				return fmt.Errorf("move %d to %s: %s, and now %+v", i, to, got, now)
			}
		}
		return nil
	})
	awaitProgress(t, clerks, 3)
	cancel()
	working.Wait()
	for _, clerk := range clerks {
		for _, key := range clerk.keys {
			if err := wantAcked(c.member(1), key, clerk.acks[key]); err != nil {
				t.Error(err)
			}
		}
		t.Logf("%d appends in %d moves, %d cured by a retry", clerk.count.Load(), moves, clerk.cured)
	}
}

// receive makes a replica ask for a tenant, as an owner does that names it, and returns
// its second line.
func (r *replica) receive(ctx context.Context, key coord.Key) <-chan string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", r.url+tenantPath(key)+"/receive", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.StatusCode != 200 {
		r.t.Fatalf("%s is not ready: %d %s", r.url, resp.StatusCode, lines.Text())
	}
	second := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		lines.Scan()
		second <- lines.Text()
	}()
	return second
}

// RO-18: a replica asks for a tenant, and its owner hands it off through the appends of
// others, once it has had it long enough.
func TestTenantIsAskedFor(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", append([]string{"--min-tenure", "2s"}, longLease...)...), f.start("b", longLease...)
	key := numberedKeys(t, 1)[0]
	c := newCrew(a, b)
	clerks := hireClerks(1, c, []coord.Key{key})
	a.must(201, "POST", tenantPath(key)+"/events", note("first"))
	clerks[0].acks[key] = []timedAck{{id: "first"}}
	first := a.state(key)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() { cancel(); working.Wait() }()
	working.Go(func() {
		if err := clerks[0].work(ctx, 2); err != nil {
			t.Error(err)
		}
	})
	if line, want := <-b.receive(t.Context(), key), fmt.Sprintf(`"epoch":%d}`, first.Epoch+1); !strings.HasSuffix(line, want) {
		t.Errorf("b says %q, want %s", line, want)
	}
	awaitProgress(t, clerks, 3)
	cancel()
	working.Wait()
	if now := a.state(key); now.Owner != b.id() {
		t.Errorf("the owner is %s", now.Owner)
	}
	if err := wantAcked(a, key, clerks[0].acks[key]); err != nil {
		t.Error(err)
	}
}

// RO-18: the request of a replica that dies vanishes with it.
func TestRequestOfADeadReplicaVanishes(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", append([]string{"--min-tenure=-1s"}, longLease...)...), f.start("b", longLease...)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: f.etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("one"))
	second := b.receive(t.Context(), key)
	awaitWants := func(n int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			got, err := etcd.Get(ctx, "/leasehold/want/"+key.String()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err == nil && got.Count == n {
				return
			}
			if !pause(ctx, 20*time.Millisecond) {
				t.Fatalf("%d requests stand, want %d (%v)", got.Count, n, err)
			}
		}
	}
	awaitWants(1)
	b.signal(syscall.SIGKILL)
	if line := <-second; line != "" {
		t.Errorf("b says %q", line)
	}
	awaitWants(0)
	if s := a.state(key); s.Epoch != 1 || !s.Held {
		t.Errorf("the tenant is at %+v", s)
	}
}

// RO-18: the successor of many tenants is killed in the middle of their moves. Each is
// served again by whoever asks, with everything that its former owner acknowledged.
func TestSuccessorKilled(t *testing.T) {
	f := newFleet(t)
	a, b, third := f.start("a", shortLease...), f.start("b", shortLease...), f.start("c", shortLease...)
	keys := numberedKeys(t, 12)
	clerks := hireClerks(len(keys), newCrew(a), keys)
	for _, clerk := range clerks {
		for i := range 5 {
			if err := clerk.append(clerk.keys[0], i, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	to := map[string]string{"to": b.id()}
	// A few at a time: some have moved, some are on their way, some have not begun.
	var moves sync.WaitGroup
	lanes, arrived := make(chan struct{}, 3), make(chan struct{}, len(keys))
	moves.Go(func() {
		for _, key := range keys {
			lanes <- struct{}{}
			moves.Go(func() {
				defer func() { <-lanes }()
				if got, err := a.do(t.Context(), "POST", tenantPath(key)+"/handoff", to); err == nil && ok(got) {
					arrived <- struct{}{}
				}
			})
		}
	})
	for range 3 {
		<-arrived
	}
	b.signal(syscall.SIGKILL)
	moves.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	epochs := make(map[uint64]int)
	var mu sync.Mutex
	forEach(t, keys, func(key coord.Key) error {
		got, err := appendEvent(ctx, key, note("afterwards"), third, a)
		if err == nil && got.Seq != 6 {
			err = fmt.Errorf("the append got seq %d, want 6", got.Seq)
		}
		mu.Lock()
		defer mu.Unlock()
		epochs[got.Epoch]++
		return err
	})
	for _, clerk := range clerks {
		key := clerk.keys[0]
		if err := wantAcked(third, key, append(clerk.acks[key], timedAck{id: "afterwards"})); err != nil {
			t.Error(err)
		}
	}
	t.Logf("tenants by epoch: %v", epochs)
}
