package coordtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	good  = memlease.Store
	ctxt  = context.Context
	key   = coord.Key
	grant = coord.Grant
)

// A broken store is a good one with some operations replaced.
type broken struct {
	*good
	read    func(ctx ctxt, g *good, k key) (coord.Record, bool, error)
	acquire func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error)
	renew   func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error)
	release func(ctx ctxt, g *good, t coord.Tenure) error
	forget  func(ctx ctxt, g *good, t coord.Tenure) (coord.Epoch, error)
	wait    func(ctx ctxt, g *good, k key) error
	audit   func(ctx ctxt, g *good, k key) ([]coord.AuditEntry, error)
}

func (b broken) Read(ctx ctxt, k key) (coord.Record, bool, error) {
	if b.read == nil {
		return b.good.Read(ctx, k)
	}
	return b.read(ctx, b.good, k)
}

func (b broken) Acquire(ctx ctxt, k key, owner string, ttl time.Duration) (grant, error) {
	if b.acquire == nil {
		return b.good.Acquire(ctx, k, owner, ttl)
	}
	return b.acquire(ctx, b.good, k, owner, ttl)
}

func (b broken) Renew(ctx ctxt, t coord.Tenure, ttl time.Duration) (grant, error) {
	if b.renew == nil {
		return b.good.Renew(ctx, t, ttl)
	}
	return b.renew(ctx, b.good, t, ttl)
}

func (b broken) Release(ctx ctxt, t coord.Tenure) error {
	if b.release == nil {
		return b.good.Release(ctx, t)
	}
	return b.release(ctx, b.good, t)
}

func (b broken) MarkForgotten(ctx ctxt, t coord.Tenure) (coord.Epoch, error) {
	if b.forget == nil {
		return b.good.MarkForgotten(ctx, t)
	}
	return b.forget(ctx, b.good, t)
}

func (b broken) WaitReleased(ctx ctxt, k key) error {
	if b.wait == nil {
		return b.good.WaitReleased(ctx, k)
	}
	return b.wait(ctx, b.good, k)
}

func (b broken) Audit(ctx ctxt, k key) ([]coord.AuditEntry, error) {
	if b.audit == nil {
		return b.good.Audit(ctx, k)
	}
	return b.audit(ctx, b.good, k)
}

// of reports whether k belongs to the check, for defects that several checks could
// find.
func of(check string, k key) bool {
	number := slices.IndexFunc(coordtest.Checks(), func(c coordtest.Check) bool { return c.Name == check })
	digits := strings.TrimPrefix(k.Tenant(), "t-")
	var n int
	for _, c := range digits[:len(digits)/2] {
		n = n*16 + strings.IndexRune("0123456789abcdef", c)
	}
	return n == number
}

func record(g *good, k key) coord.Record {
	r, _, _ := g.Read(context.Background(), k)
	return r
}

func expired(g *good, k key, now time.Time) bool {
	r := record(g, k)
	return r.Epoch > 0 && !r.Held && r.LeaseUntil.Before(now)
}

var errBroken = errors.New("broken")

// lies are stores that answer one question wrongly.
func lies(clock *coordtest.Clock) map[string]broken {
	return map[string]broken{
		"absent": {read: func(ctx ctxt, g *good, k key) (coord.Record, bool, error) {
			r, ok, err := g.Read(ctx, k)
			return r, ok || err == nil && of("absent", k), err
		}},
		"first grant": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			if of("first grant", k) {
				got.ForgottenAt++
			}
			return got, err
		}},
		"read": {read: func(ctx ctxt, g *good, k key) (coord.Record, bool, error) {
			r, ok, err := g.Read(ctx, k)
			r.Revision = 0
			return r, ok, err
		}},
		"keys apart": {release: func(ctx ctxt, g *good, t coord.Tenure) error {
			if neighbour := keyBefore(t.Key); !neighbour.IsZero() && of("keys apart", t.Key) {
				r := record(g, neighbour)
				g.Release(ctx, coord.Tenure{Key: neighbour, Owner: r.Owner, Epoch: r.Epoch})
			}
			return g.Release(ctx, t)
		}},
		"bad TTL": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			return g.Acquire(ctx, k, owner, ttl.Truncate(time.Millisecond))
		}},
		"bad ids": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			return g.Acquire(ctx, k, strings.ReplaceAll(owner, " ", "_"), ttl)
		}},
		"TTL bounds": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			got.TTL = got.TTL.Truncate(time.Second)
			if ttl == time.Second {
				got.TTL = ttl
			}
			return got, err
		}},
		"TTL honoured": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			got.TTL *= 2
			return got, err
		}},
		"records stay": {read: func(ctx ctxt, g *good, k key) (coord.Record, bool, error) {
			r, ok, err := g.Read(ctx, k)
			if ok && !r.Held && clock.Wall().Sub(r.LeaseUntil) > 3*time.Second/2 {
				return coord.Record{}, false, nil
			}
			return r, ok, err
		}},
		"cancelled": {read: func(ctx ctxt, g *good, k key) (coord.Record, bool, error) {
			return g.Read(context.WithoutCancel(ctx), k)
		}},
		"audit": {audit: func(ctx ctxt, g *good, k key) ([]coord.AuditEntry, error) {
			trail, err := g.Audit(ctx, k)
			return slices.DeleteFunc(trail, func(e coord.AuditEntry) bool { return e.Op == coord.AuditForget }), err
		}},
	}
}

func keyBefore(k key) key {
	if !strings.HasSuffix(k.Tenant(), "1") {
		return key{}
	}
	before, _ := coord.NewKey(k.Organization(), strings.TrimSuffix(k.Tenant(), "1")+"0")
	return before
}

// thieves are stores that grant, or refuse, what they should not.
func thieves(clock *coordtest.Clock) map[string]broken {
	return map[string]broken{
		"held": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			var held *coord.LeaseHeldError
			if errors.As(err, &held) && of("held", k) {
				held.Record.Epoch++
			}
			return got, err
		}},
		"held by oneself": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			if r := record(g, k); r.Held && r.Owner == owner {
				return g.Renew(ctx, coord.Tenure{Key: k, Owner: owner, Epoch: r.Epoch}, ttl)
			}
			return g.Acquire(ctx, k, owner, ttl)
		}},
		"after release": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			// The owner before last may come back sooner than it should be told.
			if r := record(g, k); of("after release", k) && r.Epoch == 2 && !r.Held {
				return grant{}, &coord.LeaseHeldError{Record: r}
			}
			return g.Acquire(ctx, k, owner, ttl)
		}},
		"after expiry": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			// A grace after an expiry that lasts until the next attempt.
			if r := record(g, k); of("after expiry", k) && r.Epoch == 2 && expired(g, k, clock.Wall()) {
				return grant{}, &coord.LeaseHeldError{Record: r}
			}
			return g.Acquire(ctx, k, owner, ttl)
		}},
		"epochs": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			if got.Epoch > 9 {
				got.Epoch = 9
			}
			return got, err
		}},
		"renew": {renew: func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error) {
			r := record(g, t.Key)
			got, err := g.Renew(ctx, t, ttl)
			if err == nil {
				got.LeaseUntil = r.LeaseUntil
			}
			return got, err
		}},
		"renew another's": {renew: func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error) {
			if r := record(g, t.Key); r.Held && t.Epoch == r.Epoch+1 {
				t.Epoch = r.Epoch
			}
			return g.Renew(ctx, t, ttl)
		}},
		"renew expired": {renew: func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error) {
			got, err := g.Renew(ctx, t, ttl)
			if r := record(g, t.Key); err != nil && r.Epoch == t.Epoch && expired(g, t.Key, clock.Wall()) {
				return grant{Tenure: t, Revision: r.Revision, TTL: ttl}, nil
			}
			return got, err
		}},
		"renew released": {renew: func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error) {
			got, err := g.Renew(ctx, t, ttl)
			if r := record(g, t.Key); errors.Is(err, coord.CodeLeaseLost) && r.Owner == t.Owner && r.Epoch == t.Epoch && !expired(g, t.Key, clock.Wall()) && !of("renew against release", t.Key) {
				return grant{Tenure: t, Revision: r.Revision, TTL: ttl}, nil
			}
			return got, err
		}},
		"release": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			// The last owner has a right of way.
			if r := record(g, k); of("release", k) && r.Epoch == 1 && r.Owner != owner {
				return grant{}, &coord.LeaseHeldError{Record: r}
			}
			return g.Acquire(ctx, k, owner, ttl)
		}},
		"stale release": {release: func(ctx ctxt, g *good, t coord.Tenure) error {
			if r := record(g, t.Key); r.Held && r.Epoch > t.Epoch {
				return nil
			}
			return g.Release(ctx, t)
		}},
		"release expired": {release: func(ctx ctxt, g *good, t coord.Tenure) error {
			if expired(g, t.Key, clock.Wall()) {
				return coord.CodeLeaseLost
			}
			return g.Release(ctx, t)
		}},
		"release twice": {release: func(ctx ctxt, g *good, t coord.Tenure) error {
			if r := record(g, t.Key); t.Validate() == nil && r.Epoch == t.Epoch && !r.Held && !expired(g, t.Key, clock.Wall()) {
				return coord.CodeLeaseLost
			}
			return g.Release(ctx, t)
		}},
		"forget": {forget: func(ctx ctxt, g *good, t coord.Tenure) (coord.Epoch, error) {
			if r := record(g, t.Key); r.Held && r.ForgottenAt == t.Epoch {
				return 0, errBroken
			}
			return g.MarkForgotten(ctx, t)
		}},
		"forget another's": {forget: func(ctx ctxt, g *good, t coord.Tenure) (coord.Epoch, error) {
			if r := record(g, t.Key); r.Held && r.Epoch == t.Epoch {
				t.Owner = r.Owner
			}
			return g.MarkForgotten(ctx, t)
		}},
		"forget expired": {forget: func(ctx ctxt, g *good, t coord.Tenure) (coord.Epoch, error) {
			floor, err := g.MarkForgotten(ctx, t)
			if r := record(g, t.Key); err != nil && r.Epoch == t.Epoch && r.Owner == t.Owner && !r.Held {
				return t.Epoch, nil
			}
			return floor, err
		}},
		"floor": {acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			if got.Epoch > got.ForgottenAt+1 {
				got.ForgottenAt = 0
			}
			return got, err
		}},
	}
}

// racy stores are right as long as one call follows the other.
func racy(clock *coordtest.Clock) map[string]broken {
	return map[string]broken{
		"race to acquire": {acquire: lookThenGrant(func(g *good, k key) bool { return record(g, k).Epoch == 0 })},
		"race for an expiring lease": {acquire: lookThenGrant(func(g *good, k key) bool {
			return expired(g, k, clock.Wall())
		})},
		"renewals against rivals": letInWhileRenewing(),
		"renew against release": {renew: func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error) {
			got, err := g.Renew(ctx, t, ttl)
			time.Sleep(2 * time.Millisecond) // the gap that the check is there to find
			if err == nil && !record(g, t.Key).Held {
				g.Acquire(ctx, t.Key, t.Owner, ttl)
			}
			return got, err
		}},
		"wait for nothing": {wait: func(ctx ctxt, g *good, k key) error {
			if r := record(g, k); r.Epoch == 0 && !k.IsZero() {
				return errBroken
			}
			return g.WaitReleased(ctx, k)
		}},
		"wait for release": {wait: func(ctx ctxt, g *good, k key) error {
			held := record(g, k).Held
			err := g.WaitReleased(ctx, k)
			if held && err == nil && !expired(g, k, clock.Wall()) {
				return errBroken
			}
			return err
		}},
		"wait for expiry": {wait: func(ctx ctxt, g *good, k key) error {
			err := g.WaitReleased(ctx, k)
			if expired(g, k, clock.Wall()) {
				return errBroken
			}
			return err
		}},
		"wait cancelled": {wait: func(ctx ctxt, g *good, k key) error {
			if err := g.WaitReleased(ctx, k); ctx.Err() == nil {
				return err
			}
			return nil
		}},
	}
}

// lookThenGrant grants to everyone who saw the key free before the first of them
// had it.
func lookThenGrant(free func(g *good, k key) bool) func(ctxt, *good, key, string, time.Duration) (grant, error) {
	return func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
		looked := ctx.Err() == nil && free(g, k)
		if looked {
			time.Sleep(3 * time.Millisecond) // the gap that the check is there to find
		}
		got, err := g.Acquire(ctx, k, owner, ttl)
		var held *coord.LeaseHeldError
		if looked && errors.As(err, &held) {
			r := held.Record
			return grant{Tenure: coord.Tenure{Key: k, Owner: owner, Epoch: r.Epoch}, Revision: r.Revision, TTL: ttl, LeaseUntil: r.LeaseUntil}, nil
		}
		return got, err
	}
}

// letInWhileRenewing takes the lease out of the store to renew it.
func letInWhileRenewing() broken {
	var mu sync.Mutex
	renewing := make(map[key]int)
	count := func(k key, by int) int {
		mu.Lock()
		defer mu.Unlock()
		renewing[k] += by
		return renewing[k]
	}
	return broken{
		renew: func(ctx ctxt, g *good, t coord.Tenure, ttl time.Duration) (grant, error) {
			count(t.Key, 1)
			defer count(t.Key, -1)
			time.Sleep(5 * time.Millisecond) // the gap that the check is there to find
			return g.Renew(ctx, t, ttl)
		},
		acquire: func(ctx ctxt, g *good, k key, owner string, ttl time.Duration) (grant, error) {
			got, err := g.Acquire(ctx, k, owner, ttl)
			if errors.Is(err, coord.CodeLeaseHeld) && count(k, 0) > 0 {
				return grant{Tenure: coord.Tenure{Key: k, Owner: owner, Epoch: 2}, TTL: ttl}, nil
			}
			return got, err
		},
	}
}

// LS-12: each of these stores breaks one promise and fails that check alone.
func TestEachCheckCanFail(t *testing.T) {
	for _, c := range coordtest.Checks() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			clock := &coordtest.Clock{}
			store, ok := broken{}, false
			for _, kind := range []map[string]broken{lies(clock), thieves(clock), racy(clock)} {
				if b, found := kind[c.Name]; found {
					store, ok = b, true
				}
			}
			if !ok {
				t.Fatal("no broken store")
			}
			store.good = memlease.New(clock)
			var failed []string
			for _, f := range coordtest.Run(t.Context(), coordtest.Subject{Store: store, Advance: clock.Advance}) {
				failed = append(failed, f.Check)
				t.Log(f)
			}
			if !slices.Equal(failed, []string{c.Name}) {
				t.Errorf("failed %q, want this check alone", failed)
			}
		})
	}
}

// The good store fails none, in real time too.
func TestGoodStorePasses(t *testing.T) {
	t.Parallel()
	store := memlease.New(coord.SystemClock())
	for _, f := range coordtest.Run(t.Context(), coordtest.Subject{Store: store, Organization: "acme", TTL: 3 * time.Second}) {
		t.Error(f)
	}
}

func TestPanicAndHangAreFailures(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, renew := range map[string]func(ctxt, *good, coord.Tenure, time.Duration) (grant, error){
		"panic": func(ctxt, *good, coord.Tenure, time.Duration) (grant, error) { panic("boom") },
		"hang": func(ctxt, *good, coord.Tenure, time.Duration) (grant, error) {
			<-release
			return grant{}, errBroken
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &coordtest.Clock{}
			timeout := 10 * time.Second
			if name == "hang" {
				timeout = 20 * time.Millisecond
			}
			store := broken{good: memlease.New(clock), renew: renew}
			subject := coordtest.Subject{Store: store, Advance: clock.Advance, CheckTimeout: timeout}
			if failures := coordtest.Run(t.Context(), subject); len(failures) == 0 {
				t.Error("no failure")
			}
		})
	}
}
