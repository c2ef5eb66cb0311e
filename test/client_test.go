package test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/test/flights"
)

func tenantPath(key coord.Key) string {
	return "/v1/organizations/" + key.Organization() + "/tenants/" + key.Tenant()
}

func loadFlights(t *testing.T) []flights.Flight {
	t.Helper()
	all, err := flights.Load()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// byTenant groups flights, keeping their order.
func byTenant(all []flights.Flight) map[coord.Key][]flights.Flight {
	groups := make(map[coord.Key][]flights.Flight)
	for _, f := range all {
		groups[f.Key] = append(groups[f.Key], f)
	}
	return groups
}

func keysOf(groups map[coord.Key][]flights.Flight) []coord.Key {
	keys := make([]coord.Key, 0, len(groups))
	for key := range groups {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b coord.Key) int { return len(groups[b]) - len(groups[a]) })
	return keys
}

// numberedKeys are tenants that no flight belongs to.
func numberedKeys(t *testing.T, n int) []coord.Key {
	t.Helper()
	keys := make([]coord.Key, n)
	for i := range keys {
		key, err := coord.NewKey("acme", fmt.Sprintf("t-%032x", i+1))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
	}
	return keys
}

func note(id string) flights.Event {
	return flights.Event{Actor: "test", Kind: "note", SubjectID: "s", Payload: json.RawMessage(`{"n":1}`), IdemKey: id}
}

// An ack is an append that was acknowledged.
type ack struct {
	Seq       uint64 `json:"seq"`
	Epoch     uint64 `json:"epoch"`
	Duplicate bool   `json:"duplicate"`
	retries   int
}

// appendEvent appends through the given replicas in turn until one acknowledges,
// always under the event's idempotency key. Every answer on the way must be one
// that a client is told to retry.
func appendEvent(ctx context.Context, key coord.Key, event flights.Event, through ...*replica) (ack, error) {
	for retries := 0; ; retries++ {
		r := through[retries%len(through)]
		got, err := r.do(ctx, "POST", tenantPath(key)+"/events", event)
		switch {
		case ctx.Err() != nil:
			return ack{}, fmt.Errorf("%s not acknowledged after %d retries: %s %w", event.IdemKey, retries, got, ctx.Err())
		case err != nil: // the connection broke: the outcome is unknown, the key makes a retry safe
		case ok(got):
			a := ack{retries: retries}
			return a, json.Unmarshal(got.body, &a)
		case got.status != 503 || got.header.Get("Retry-After") == "":
			return ack{}, fmt.Errorf("append %s: %s does not ask for a retry", event.IdemKey, got)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// A stored event, as it is read back.
type stored struct {
	Seq     uint64          `json:"seq"`
	Kind    string          `json:"kind"`
	Payload json.RawMessage `json:"payload"`
	IdemKey string          `json:"idem_key"`
}

// events reads a whole ledger page by page.
func (r *replica) events(key coord.Key) []stored {
	r.t.Helper()
	var all []stored
	after := uint64(0)
	for {
		got := r.eventually(patience, "GET", tenantPath(key)+"/events?limit=100&after="+strconv.FormatUint(after, 10), nil, ok)
		var page struct {
			Events []stored `json:"events"`
		}
		got.into(r.t, &page)
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
		after = all[len(all)-1].Seq
	}
}

func (r *replica) idemKeys(key coord.Key) []string {
	r.t.Helper()
	var ids []string
	for _, e := range r.events(key) {
		ids = append(ids, e.IdemKey)
	}
	return ids
}

// A tenantState is what GET on a tenant says.
type tenantState struct {
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
	Held  bool   `json:"held"`
}

func (r *replica) state(key coord.Key) tenantState {
	r.t.Helper()
	var s tenantState
	r.must(200, "GET", tenantPath(key), nil).into(r.t, &s)
	return s
}

func (r *replica) id() string {
	r.t.Helper()
	var s struct {
		ID string `json:"replica"`
	}
	r.must(200, "GET", "/v1/replica", nil).into(r.t, &s)
	return s.ID
}

// forEach calls f for every key, a few at a time, and fails the test with every
// error.
func forEach(t *testing.T, keys []coord.Key, f func(key coord.Key) error) {
	t.Helper()
	var wg sync.WaitGroup
	lanes := make(chan struct{}, 8)
	for _, key := range keys {
		lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-lanes }()
			if err := f(key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// appendFlights appends every flight, each tenant's in order, through the given
// replicas in turn.
func appendFlights(t *testing.T, groups map[coord.Key][]flights.Flight, through ...*replica) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	forEach(t, keysOf(groups), func(key coord.Key) error {
		first := int(key.Tenant()[len(key.Tenant())-1]) // each replica opens some tenants
		for i, f := range groups[key] {
			// Another replica for each event, so that every other one is forwarded.
			turn := (first + i) % len(through)
			turned := append(slices.Clone(through[turn:]), through[:turn]...)
			a, err := appendEvent(ctx, key, f.Event, turned...)
			if err != nil {
				return err
			}
			if a.Seq != uint64(i+1) {
				return fmt.Errorf("%s got seq %d, want %d", f.Event.IdemKey, a.Seq, i+1)
			}
		}
		return nil
	})
}

// wantFlights checks that a ledger begins with the flights, in order.
func wantFlights(r *replica, key coord.Key, group []flights.Flight) error {
	got := r.idemKeys(key)
	if len(got) < len(group) {
		return fmt.Errorf("%d events, want at least %d", len(got), len(group))
	}
	for i, f := range group {
		if got[i] != f.Event.IdemKey {
			return fmt.Errorf("event %d is %s, want %s", i+1, got[i], f.Event.IdemKey)
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(got))); len(unique) != len(got) {
		return fmt.Errorf("%d of %d events stand twice", len(got)-len(unique), len(got))
	}
	return nil
}
