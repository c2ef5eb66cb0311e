package fencing_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
)

var leaseOptions = fencing.LeaseOptions{TTL: 10 * time.Second, Margin: 2 * time.Second}

func testKey(t *testing.T) coord.Key {
	t.Helper()
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A slowStore lets a test act, and time pass, while a request is on its way.
type slowStore struct {
	coord.LeaseStore
	before, after func(op string)
	forge         func(*coord.Grant)
	fail          error
}

func (s *slowStore) call(op string) func() {
	if s.before != nil {
		s.before(op)
	}
	return func() {
		if s.after != nil {
			s.after(op)
		}
	}
}

func (s *slowStore) answer(g coord.Grant, err error) (coord.Grant, error) {
	if s.fail != nil {
		return coord.Grant{}, s.fail
	}
	if s.forge != nil {
		s.forge(&g)
	}
	return g, err
}

func (s *slowStore) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	defer s.call("acquire")()
	return s.answer(s.LeaseStore.Acquire(ctx, key, owner, ttl))
}

func (s *slowStore) Renew(ctx context.Context, t coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	defer s.call("renew")()
	return s.answer(s.LeaseStore.Renew(ctx, t, ttl))
}

func (s *slowStore) Release(ctx context.Context, t coord.Tenure) error {
	defer s.call("release")()
	if s.fail != nil {
		return s.fail
	}
	return s.LeaseStore.Release(ctx, t)
}

func acquire(t *testing.T, store coord.LeaseStore, clock coord.Clock) *fencing.Lease {
	t.Helper()
	opts := leaseOptions
	opts.Clock = clock
	l, err := fencing.Acquire(t.Context(), store, testKey(t), "A", opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantFenced(t *testing.T, err error, reason coord.FenceReason) {
	t.Helper()
	var fenced *coord.FencedError
	if !errors.As(err, &fenced) || fenced.Reason != reason {
		t.Errorf("got %v, want FENCED because %s", err, reason)
	}
}

// HL-1: the fence counts from before the request, however long it travelled and
// whichever half of the round trip was slow.
func TestFenceCountsFromBeforeTheRequest(t *testing.T) {
	for _, slow := range []string{"before", "after"} {
		t.Run(slow, func(t *testing.T) {
			clock := &coordtest.Clock{}
			travel := func(string) { clock.Advance(3 * time.Second) }
			store := &slowStore{LeaseStore: memlease.New(clock)}
			if slow == "before" {
				store.before = travel
			} else {
				store.after = travel
			}
			l := acquire(t, store, clock)
			if got, want := l.Remaining(), 5*time.Second; got != want {
				t.Errorf("after a round trip of 3s the gate stays open for %v, want TTL − margin − 3s = %v", got, want)
			}
			clock.Advance(5*time.Second - 1)
			if err := l.Check(); err != nil {
				t.Errorf("refused before the fence: %v", err)
			}
			clock.Advance(1)
			wantFenced(t, l.Check(), coord.FenceExpired)
		})
	}
}

// HL-1: the margin's bounds.
func TestLeaseOptionsBounds(t *testing.T) {
	for _, opts := range []fencing.LeaseOptions{
		{TTL: time.Second, Margin: time.Second},
		{TTL: time.Second, Margin: -1},
		{TTL: time.Millisecond},
		{},
	} {
		_, err := fencing.Acquire(t.Context(), memlease.New(&coordtest.Clock{}), testKey(t), "A", opts)
		if coord.CodeOf(err) != coord.CodeOptionsInvalid {
			t.Errorf("%+v: got %v, want OPTIONS_INVALID", opts, err)
		}
	}
}

// HL-2: synchronous and allocation-free, open or shut.
func TestCheckAllocatesNothing(t *testing.T) {
	clock := &coordtest.Clock{}
	l := acquire(t, memlease.New(clock), clock)
	for range 2 { // open, then shut
		if n := testing.AllocsPerRun(100, func() { _, _ = l.Check(), l.CheckRead() }); n != 0 {
			t.Errorf("the gate allocates %v times, answering %v", n, l.Check())
		}
		clock.Advance(time.Minute)
	}
}

// HL-3: a grant that came too late is handed back.
func TestLateGrantIsHandedBack(t *testing.T) {
	clock := &coordtest.Clock{}
	inner := memlease.New(clock)
	store := &slowStore{LeaseStore: inner, after: func(op string) {
		if op == "acquire" {
			clock.Advance(8 * time.Second)
		}
	}}
	opts := leaseOptions
	opts.Clock = clock
	_, err := fencing.Acquire(t.Context(), store, testKey(t), "A", opts)
	if !errors.Is(err, coord.CodeLeaseLost) {
		t.Fatalf("got %v, want LEASE_LOST", err)
	}
	record, _, err := inner.Read(t.Context(), testKey(t))
	if err != nil || record.Held {
		t.Errorf("the grant was kept: %+v, %v", record, err)
	}
}

// HL-3: a store that grants something else than was asked for is not believed.
func TestForeignGrantIsLost(t *testing.T) {
	other, err := coord.NewKey("other", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(*coord.Grant){
		"owner": func(g *coord.Grant) { g.Owner = "B" },
		"key":   func(g *coord.Grant) { g.Key = other },
	} {
		clock := &coordtest.Clock{}
		store := &slowStore{LeaseStore: memlease.New(clock), forge: forge}
		opts := leaseOptions
		opts.Clock = clock
		if _, err := fencing.Acquire(t.Context(), store, testKey(t), "A", opts); !errors.Is(err, coord.CodeLeaseLost) {
			t.Errorf("%s: acquire got %v, want LEASE_LOST", name, err)
		}
		store.forge = nil
		clock.Advance(time.Minute)
		l := acquire(t, store, clock)
		store.forge = forge
		if err := l.Renew(t.Context()); !errors.Is(err, coord.CodeLeaseLost) {
			t.Errorf("%s: renew got %v, want LEASE_LOST", name, err)
		}
		wantFenced(t, l.Check(), coord.FenceLost)
	}
}

// HL-4: renewals and the release run one at a time, in call order.
func TestOperationsRunInCallOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := coordtest.BubbleClock()
		var mu sync.Mutex
		var order []string
		var running int
		store := &slowStore{LeaseStore: memlease.New(clock)}
		l := acquire(t, store, clock)
		store.before = func(op string) {
			mu.Lock()
			order = append(order, op)
			if running++; running > 1 {
				t.Error("two operations at once")
			}
			mu.Unlock()
			time.Sleep(10 * time.Millisecond) // the bubble's clock: keeps the store busy
			mu.Lock()
			running--
			mu.Unlock()
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if i == 3 {
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
				err := l.Renew(t.Context())
				if i > 3 || err != nil {
					// Also those queued before the release end with its gate shut.
					wantFenced(t, err, coord.FenceReleased)
				}
			})
			synctest.Wait() // the call is queued before the next is made
		}
		wg.Wait()
		if len(order) != 2 || order[0] != "renew" || order[1] != "release" {
			t.Errorf("the store saw %v, want the renewal that was running, then the release", order)
		}
	})
}

// HL-5: a refused renewal is terminal.
func TestRefusedRenewalIsTerminal(t *testing.T) {
	clock := &coordtest.Clock{}
	store := memlease.New(clock)
	l := acquire(t, store, clock)
	clock.Advance(11 * time.Second)
	if err := l.Renew(t.Context()); !errors.Is(err, coord.CodeLeaseLost) {
		t.Fatalf("renewal of an expired lease: %v", err)
	}
	wantFenced(t, l.Check(), coord.FenceLost)
	wantFenced(t, l.Renew(t.Context()), coord.FenceLost)
	if err := l.Release(t.Context()); !errors.Is(err, coord.CodeLeaseLost) {
		t.Errorf("release of a lost lease: %v", err)
	}
}

// HL-5: any other failure leaves the deadline, and a later renewal resumes the
// tenure at the same epoch.
func TestFailedRenewalLeavesTheFence(t *testing.T) {
	clock := &coordtest.Clock{}
	store := &slowStore{LeaseStore: memlease.New(clock)}
	l := acquire(t, store, clock)
	clock.Advance(time.Second)
	store.fail = &coord.Error{Code: coord.CodeLeaseStoreUnavailable}
	if err := l.Renew(t.Context()); !errors.Is(err, coord.CodeLeaseStoreUnavailable) {
		t.Fatal(err)
	}
	if got, want := l.Remaining(), 7*time.Second; got != want {
		t.Errorf("a failed renewal left %v, want %v", got, want)
	}
	clock.Advance(7 * time.Second)
	wantFenced(t, l.Check(), coord.FenceExpired)
	if err := l.Ended(); err != nil {
		t.Errorf("a fence that passed is not the end: %v", err)
	}
	store.fail = nil
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Errorf("a granted renewal did not resume the tenure: %v", err)
	}
	if l.Tenure().Epoch != 1 {
		t.Errorf("epoch %d, want 1", l.Tenure().Epoch)
	}
}

// HL-5: a renewal never moves the fence back, whatever TTL the store reports.
func TestRenewalNeverMovesTheFenceBack(t *testing.T) {
	clock := &coordtest.Clock{}
	store := &slowStore{LeaseStore: memlease.New(clock)}
	l := acquire(t, store, clock)
	store.forge = func(g *coord.Grant) { g.TTL = time.Second }
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := l.Remaining(), 8*time.Second; got != want {
		t.Errorf("Remaining() = %v, want %v", got, want)
	}
}

// HL-6: the gate shuts before the store is told, and stays shut if it cannot be.
func TestReleaseStopsFirst(t *testing.T) {
	clock := &coordtest.Clock{}
	inner := memlease.New(clock)
	store := &slowStore{LeaseStore: inner}
	l := acquire(t, store, clock)
	store.before = func(op string) { wantFenced(t, l.Check(), coord.FenceReleased) }
	store.fail = &coord.Error{Code: coord.CodeLeaseStoreUnavailable}
	if err := l.Release(t.Context()); !errors.Is(err, coord.CodeLeaseStoreUnavailable) {
		t.Errorf("the caller does not learn that the store was not told: %v", err)
	}
	wantFenced(t, l.Check(), coord.FenceReleased)
	store.fail = nil
	for range 2 {
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("telling the store again: %v", err)
		}
	}
	if record, _, _ := inner.Read(t.Context(), testKey(t)); record.Held {
		t.Error("the store was not told")
	}
}

func TestForgetRaisesTheFloor(t *testing.T) {
	clock := &coordtest.Clock{}
	l := acquire(t, memlease.New(clock), clock)
	if floor, err := l.Forget(t.Context()); err != nil || floor != 1 {
		t.Errorf("Forget() = %d, %v, want 1", floor, err)
	}
	clock.Advance(time.Minute)
	if _, err := l.Forget(t.Context()); !errors.Is(err, coord.CodeLeaseLost) {
		t.Errorf("forget after expiry: %v", err)
	}
	wantFenced(t, l.Check(), coord.FenceLost)
}

// A suspendedClock has stood still in Quick for a while.
type suspendedClock struct {
	coordtest.Clock
	asleep atomic.Int64
}

func (c *suspendedClock) Quick() time.Duration { return c.Now() - time.Duration(c.asleep.Load()) }

// HL-7: reads notice a suspension within the grace too.
func TestReadsNoticeSuspension(t *testing.T) {
	clock := &suspendedClock{}
	l := acquire(t, memlease.New(clock), clock)
	if err := l.CheckRead(); err != nil {
		t.Fatal(err)
	}
	clock.asleep.Add(int64(time.Hour))
	clock.Advance(time.Hour)
	wantFenced(t, l.Check(), coord.FenceExpired)
	clock.Advance(time.Millisecond)
	wantFenced(t, l.CheckRead(), coord.FenceExpired)
}

// A steppedClock is one whose calendar somebody sets.
type steppedClock struct {
	coordtest.Clock
	step atomic.Int64
}

func (c *steppedClock) Wall() time.Time { return c.Clock.Wall().Add(time.Duration(c.step.Load())) }

// Trap 4: steps of the wall clock neither prolong a lease nor end it.
func TestStepsOfTheWallClockChangeNothing(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		clock := &steppedClock{}
		store := memlease.New(clock)
		l := acquire(t, store, clock)
		clock.step.Store(int64(step))
		left := l.Remaining()
		if err := l.Check(); err != nil || left != leaseOptions.TTL-leaseOptions.Margin {
			t.Errorf("after a step of %v: %v, %v to the fence", step, err, left)
		}
		if _, err := store.Acquire(t.Context(), testKey(t), "B", leaseOptions.TTL); !errors.Is(err, coord.CodeLeaseHeld) {
			t.Errorf("after a step of %v another holder: %v", step, err)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Errorf("renewed after a step of %v: %v", step, err)
		}
		clock.Advance(left)
		wantFenced(t, l.Check(), coord.FenceExpired)
	}
}

func BenchmarkCheck(b *testing.B) {
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		b.Fatal(err)
	}
	l, err := fencing.Acquire(b.Context(), memlease.New(coord.SystemClock()), key, "A", fencing.LeaseOptions{TTL: coord.MaxTTL})
	if err != nil {
		b.Fatal(err)
	}
	for name, check := range map[string]func() error{"full": l.Check, "read": l.CheckRead} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := check(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
