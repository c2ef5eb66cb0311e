package etcdlease_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// ttl does not run out during a test, and soon is long before it does.
const (
	ttl  = 2 * time.Minute
	soon = ttl / 3
)

// LS-1, LS-2.
func TestAcquireAndRead(t *testing.T) {
	t.Parallel()
	s := open(t, nil, func(c *etcdlease.Config) { c.Address = "http://127.0.0.1:1" })
	k := key(t, 1)
	if _, ok, err := s.Read(t.Context(), k); ok || err != nil {
		t.Fatalf("an unknown key reads as %v, %v", ok, err)
	}
	g := acquire(t, s, k, "a", ttl)
	if g.Key != k || g.Owner != "a" || g.Epoch != 1 || g.Revision == 0 || g.TTL != ttl || g.ForgottenAt != 0 || !g.LeaseUntil.After(time.Now()) {
		t.Errorf("granted %+v", g)
	}
	r := read(t, s, k)
	if !r.Held || r.Owner != "a" || r.Epoch != 1 || r.Revision != g.Revision || r.Address != "http://127.0.0.1:1" || !r.LeaseUntil.After(time.Now()) {
		t.Errorf("recorded %+v", r)
	}
	for _, owner := range []string{"a", "b"} {
		_, err := s.Acquire(t.Context(), k, owner, ttl)
		var held *coord.LeaseHeldError
		if !errors.As(err, &held) || held.Record.Owner != "a" || held.Record.Epoch != 1 || !held.Record.Held {
			t.Errorf("%s: got %v", owner, err)
		}
	}
}

// LS-3: epochs are 1, 2, 3 across release and expiry.
func TestEpochs(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	k := key(t, 1)
	var last coord.Grant
	for want := coord.Epoch(1); want <= 5; want++ {
		g := acquire(t, s, k, fmt.Sprint("owner", want), time.Second)
		if g.Epoch != want || g.Revision <= last.Revision {
			t.Fatalf("grant %d is %+v after %+v", want, g, last)
		}
		last = g
		if want%2 == 0 {
			released(t, s, k, soon)
			wantCode(t, renewErr(t, s, g.Tenure, ttl), coord.CodeLeaseLost) // LS-4
			if err := s.Release(t.Context(), g.Tenure); err != nil {        // LS-5
				t.Fatalf("release of an expired lease: %v", err)
			}
		} else if err := s.Release(t.Context(), g.Tenure); err != nil {
			t.Fatal(err)
		}
		if r := read(t, s, k); r.Held || r.Epoch != want || r.LeaseUntil.After(time.Now()) {
			t.Fatalf("after epoch %d: %+v", want, r)
		}
	}
}

func renewErr(t *testing.T, s *etcdlease.Store, ten coord.Tenure, d time.Duration) error {
	t.Helper()
	_, err := s.Renew(t.Context(), ten, d)
	return err
}

// LS-4.
func TestRenew(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	k := key(t, 1)
	g := acquire(t, s, k, "a", ttl)
	for range 3 {
		r, err := s.Renew(t.Context(), g.Tenure, ttl)
		if err != nil || r.Tenure != g.Tenure || r.Revision != g.Revision || r.TTL != ttl {
			t.Fatalf("renewed as %+v, %v", r, err)
		}
	}
	for name, ten := range map[string]coord.Tenure{
		"other owner": {Key: k, Owner: "b", Epoch: 1},
		"other epoch": {Key: k, Owner: "a", Epoch: 2},
		"unknown key": {Key: key(t, 2), Owner: "a", Epoch: 1},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, renewErr(t, s, ten, ttl), coord.CodeLeaseLost) })
	}
}

// LS-5.
func TestRelease(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	k := key(t, 1)
	first := acquire(t, s, k, "a", ttl)
	for range 2 {
		if err := s.Release(t.Context(), first.Tenure); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, renewErr(t, s, first.Tenure, ttl), coord.CodeLeaseLost)
	second := acquire(t, s, k, "b", ttl)
	wantCode(t, s.Release(t.Context(), first.Tenure), coord.CodeLeaseLost)
	wantCode(t, s.Release(t.Context(), coord.Tenure{Key: key(t, 2), Owner: "a", Epoch: 1}), coord.CodeLeaseLost)
	if r := read(t, s, k); !r.Held || r.Epoch != second.Epoch {
		t.Errorf("a stale release changed %+v", r)
	}
}

// LS-6.
func TestMarkForgotten(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	k := key(t, 1)
	first := acquire(t, s, k, "a", ttl)
	s.Release(t.Context(), first.Tenure)
	_, err := s.MarkForgotten(t.Context(), first.Tenure)
	wantCode(t, err, coord.CodeLeaseLost)
	second := acquire(t, s, k, "a", ttl)
	_, err = s.MarkForgotten(t.Context(), first.Tenure)
	wantCode(t, err, coord.CodeLeaseLost)
	for range 2 {
		if floor, err := s.MarkForgotten(t.Context(), second.Tenure); floor != 2 || err != nil {
			t.Fatalf("floor %d, %v", floor, err)
		}
	}
	if g, err := s.Renew(t.Context(), second.Tenure, ttl); err != nil || g.ForgottenAt != 2 {
		t.Errorf("renewed as %+v, %v", g, err)
	}
	s.Release(t.Context(), second.Tenure)
	if g := acquire(t, s, k, "b", ttl); g.Epoch != 3 || g.ForgottenAt != 2 {
		t.Errorf("granted %+v", g)
	}
	if r := read(t, s, k); r.ForgottenAt != 2 {
		t.Errorf("recorded %+v", r)
	}
}

// LS-7: bad arguments leave no record; etcd's seconds are rounded up and reported.
func TestArguments(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	k := key(t, 1)
	for _, bad := range []time.Duration{0, 99 * time.Millisecond, 10*time.Minute + time.Millisecond, time.Second + time.Microsecond} {
		_, err := s.Acquire(t.Context(), k, "a", bad)
		wantCode(t, err, coord.CodeTTLInvalid)
	}
	for _, owner := range []string{"", "a b", string(make([]byte, 300))} {
		_, err := s.Acquire(t.Context(), k, owner, ttl)
		wantCode(t, err, coord.CodeIDInvalid)
	}
	_, err := s.Acquire(t.Context(), coord.Key{}, "a", ttl)
	wantCode(t, err, coord.CodeIDInvalid)
	wantCode(t, renewErr(t, s, coord.Tenure{Key: k, Owner: "a"}, ttl), coord.CodeIDInvalid)
	wantCode(t, s.Release(t.Context(), coord.Tenure{}), coord.CodeIDInvalid)
	_, err = s.MarkForgotten(t.Context(), coord.Tenure{})
	wantCode(t, err, coord.CodeIDInvalid)
	wantCode(t, s.WaitReleased(t.Context(), coord.Key{}), coord.CodeIDInvalid)
	if n := countKeys(t, etcd(t), prefix(t)); n != 1 { // the id of the cluster
		t.Errorf("bad arguments left %d keys", n)
	}
	for want, granted := range map[time.Duration]time.Duration{
		100 * time.Millisecond: time.Second, 1500 * time.Millisecond: 2 * time.Second, 10 * time.Minute: 10 * time.Minute,
	} {
		g := acquire(t, s, key(t, int(want)), "a", want)
		if g.TTL != granted {
			t.Errorf("%v was granted as %v", want, g.TTL)
		}
	}
}

// LS-11 in one process: of many contenders exactly one is granted.
func TestRace(t *testing.T) {
	t.Parallel()
	stores := []*etcdlease.Store{open(t, nil), open(t, nil)}
	for n := range 5 {
		k := key(t, n)
		var granted atomic.Int32
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := stores[i%2].Acquire(t.Context(), k, fmt.Sprint("r", i), ttl)
				var held *coord.LeaseHeldError
				switch {
				case err == nil:
					granted.Add(1)
				case !errors.As(err, &held) || held.Record.Owner == "":
					t.Errorf("refused with %v", err)
				}
			})
		}
		wg.Wait()
		if granted.Load() != 1 {
			t.Errorf("%d contenders were granted %v", granted.Load(), k)
		}
	}
}

// A transaction holds at most 128 operations; releases do not share one. An etcd that
// is given more at once than it can do in its own time limit is asked again.
func TestManyReleasesAtOnce(t *testing.T) {
	for _, n := range []int{129, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			releaseAtOnce(t, n)
		})
	}
}

func releaseAtOnce(t *testing.T, n int) {
	const ttl = 10 * time.Minute
	s := open(t, nil)
	grants := make([]coord.Grant, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := insist(t, func() (err error) {
				grants[i], err = s.Acquire(t.Context(), key(t, i), "a", ttl)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		wg.Go(func() {
			if err := insist(t, func() error { return s.Release(t.Context(), grants[i].Tenure) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left := countKeys(t, etcd(t), prefix(t)+"owner/"); left != 0 {
		t.Errorf("%d owner keys are left", left)
	}
}
