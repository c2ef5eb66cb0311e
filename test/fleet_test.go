package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

// RE-4, RE-6: all flights go in through a mix of two replicas that own different
// tenants; each ledger reads the same from either, in order, with nothing twice,
// also after every append was repeated.
func TestFlightsThroughTwoReplicas(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", longLease...), f.start("b", longLease...)
	groups := byTenant(loadFlights(t))
	appendFlights(t, groups, a, b)
	appendFlights(t, groups, b, a) // as clients do whose replies were lost

	for _, r := range []*replica{a, b} {
		forEach(t, keysOf(groups), func(key coord.Key) error {
			if n := len(r.events(key)); n != len(groups[key]) {
				return fmt.Errorf("%d events, want %d", n, len(groups[key]))
			}
			return wantFlights(r, key, groups[key])
		})
	}
	owners := make(map[string]int)
	for key := range groups {
		owners[a.state(key).Owner]++
	}
	if len(owners) != 2 {
		t.Errorf("one replica owns every tenant, so nothing was forwarded: %v", owners)
	}
}

// Requests that meet a tenant while it is being opened wait for it, wherever they
// came in: none is refused.
func TestFirstContact(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", longLease...), f.start("b", longLease...)
	for _, key := range numberedKeys(t, 5) {
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				through := []*replica{a, b}[i%2]
				got, err := through.do(t.Context(), "POST", tenantPath(key)+"/events", note(fmt.Sprintf("n-%d", i)))
				if err != nil || got.status != 201 {
					t.Errorf("append %d: %s, %v", i, got, err)
				}
			})
		}
		clients.Wait()
		if n := len(a.events(key)); n != 20 {
			t.Errorf("%d events, want 20", n)
		}
	}
}

// A watcher keeps a replica's own events, as its event stream tells them.
type watcher struct {
	mu struct {
		sync.Mutex
		events []replicaEvent
	}
	connected chan struct{}
	done      chan struct{}
}

type replicaEvent struct {
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Epoch   uint64 `json:"epoch"`
	Flushed bool   `json:"flushed"`
}

func watch(ctx context.Context, r *replica) *watcher {
	w := &watcher{connected: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/events", nil)
		if err != nil {
			return
		}
		resp, err := r.client.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		close(w.connected)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, isData := strings.CutPrefix(lines.Text(), "data: ")
			var e replicaEvent
			if isData && json.Unmarshal([]byte(data), &e) == nil {
				w.mu.Lock()
				w.mu.events = append(w.mu.events, e)
				w.mu.Unlock()
			}
		}
	}()
	return w
}

// of returns one tenant's events.
func (w *watcher) of(key coord.Key) []replicaEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.mu.events), func(e replicaEvent) bool { return e.Key != key.String() })
}

// RO-8, RO-16: every tenant moves from A to B while clients append to it.
func TestHandoffUnderAppends(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", longLease...), f.start("b", longLease...)
	ctx, cancel := context.WithCancel(t.Context())
	w := watch(ctx, a)
	defer func() { cancel(); <-w.done }()
	select {
	case <-w.connected:
	case <-w.done:
		t.Fatal("no event stream")
	}
	groups := byTenant(loadFlights(t))
	keys := keysOf(groups)
	appendFlights(t, groups, a)

	// One client per tenant appends through B, which forwards until it owns the
	// tenant. Each goes on until B has acknowledged three events of its own.
	moved := make(map[coord.Key][]ack)
	var mu sync.Mutex
	var clients sync.WaitGroup
	started := make(chan struct{}, len(keys))
	for _, key := range keys {
		clients.Go(func() {
			acks, err := appendUntilMoved(t.Context(), key, b, started)
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			mu.Lock()
			moved[key] = acks
			mu.Unlock()
		})
	}
	for range keys {
		<-started // every client is in the middle of its appends
	}
	forEach(t, keys, func(key coord.Key) error {
		got, err := a.do(t.Context(), "POST", tenantPath(key)+"/handoff", nil)
		if err == nil && !ok(got) {
			err = fmt.Errorf("handoff: %s", got)
		}
		return err
	})
	clients.Wait()

	owner := b.id()
	retries := 0
	forEach(t, keys, func(key coord.Key) error {
		if s := b.state(key); s.Epoch != 2 || s.Owner != owner {
			return fmt.Errorf("epoch %d owned by %s, want epoch 2 owned by %s", s.Epoch, s.Owner, owner)
		}
		if err := wantFlights(b, key, groups[key]); err != nil {
			return err
		}
		got := b.idemKeys(key)
		for i := range moved[key] {
			if id := fmt.Sprintf("moving-%d", i); !slices.Contains(got, id) {
				return fmt.Errorf("acknowledged event %s is missing", id)
			}
		}
		return wantOrder(w.of(key))
	})
	for _, acks := range moved {
		for _, a := range acks {
			retries += a.retries
		}
	}
	t.Logf("%d tenants moved; clients retried %d times", len(keys), retries)
}

func appendUntilMoved(ctx context.Context, key coord.Key, through *replica, started chan<- struct{}) ([]ack, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var acks []ack
	var once sync.Once
	begun := func() { once.Do(func() { started <- struct{}{} }) }
	defer begun()
	atNewOwner := 0
	for i := 0; atNewOwner < 3; i++ {
		a, err := appendEvent(ctx, key, note(fmt.Sprintf("moving-%d", i)), through)
		if err != nil {
			return acks, err
		}
		begun()
		acks = append(acks, a)
		if a.Epoch == 2 {
			atNewOwner++
		}
	}
	return acks, nil
}

// wantOrder checks the events of a tenure that ended in a handoff.
func wantOrder(events []replicaEvent) error {
	var kinds []string
	for _, e := range events {
		if e.Epoch != 1 {
			return fmt.Errorf("event %s of epoch %d, want 1", e.Kind, e.Epoch)
		}
		if e.Kind != "renewed" {
			kinds = append(kinds, e.Kind)
		}
	}
	middle := kinds
	if len(kinds) >= 4 {
		middle = slices.Compact(slices.Clone(kinds))
	}
	if want := []string{"acquired", "restored", "snapshot", "released"}; !slices.Equal(middle, want) {
		return fmt.Errorf("events %v, want %v", kinds, want)
	}
	if last := events[len(events)-1]; last.Kind != "released" || !last.Flushed {
		return fmt.Errorf("the last event is %+v, want released, flushed", last)
	}
	return nil
}
