package etcdlease_test

import (
	"sync"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// unlease leaves a grant's owner key on no etcd lease.
func unlease(t *testing.T, k coord.Key) {
	t.Helper()
	owner := prefix(t) + "owner/" + k.String()
	value, _ := get(t, etcd(t), owner)
	if _, err := etcd(t).Put(t.Context(), owner, value); err != nil {
		t.Fatal(err)
	}
}

// Trap 8: an operator can end what nothing else would, at the price of an epoch.
func TestEndStuck(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	acquire(t, s, key(t, 1), "dead", 3*time.Second)
	unlease(t, key(t, 1))
	operator := open(t, nil)
	began := time.Now()
	ended, err := operator.EndStuck(t.Context(), key(t, 1))
	if err != nil || ended.Owner != "dead" || ended.Epoch != 1 {
		t.Fatalf("ended %+v, %v", ended, err)
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("ended after %v, when a holder could still acknowledge", took)
	}
	if g := acquire(t, operator, key(t, 1), "b", ttl); g.Epoch != 2 {
		t.Errorf("granted %+v", g)
	}
	_, err = operator.EndStuck(t.Context(), key(t, 1))
	wantCode(t, err, coord.CodeLeaseHeld)
	_, err = operator.EndStuck(t.Context(), key(t, 2))
	wantCode(t, err, coord.CodeLeaseLost)
	_, err = operator.EndStuck(t.Context(), coord.Key{})
	wantCode(t, err, coord.CodeIDInvalid)
}

// A renewal may have been for longer than the grant, and its holder acknowledges until
// then.
func TestEndStuckWaitsForALongerRenewal(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	g := acquire(t, s, key(t, 1), "a", 3*time.Second)
	longer, err := s.Renew(t.Context(), g.Tenure, 6*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	unlease(t, key(t, 1))
	began := time.Now()
	if _, err := open(t, nil).EndStuck(t.Context(), key(t, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < longer.TTL {
		t.Errorf("ended after %v, when the holder could still acknowledge", took)
	}
}

// Whoever writes the key while it is watched keeps it, such as an owner that is alive
// after all and renews.
func TestEndStuckYields(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	g := acquire(t, s, key(t, 1), "alive", 5*time.Second)
	unlease(t, key(t, 1))
	w := &wire{}
	var once sync.Once
	operator := open(t, w)
	w.set(func(w *wire) {
		w.answered = func(method string) {
			if method == txnMethod {
				once.Do(func() { _ = renewErr(t, s, g.Tenure, 5*time.Second); unlease(t, key(t, 1)) })
			}
		}
	})
	_, err := operator.EndStuck(t.Context(), key(t, 1))
	wantCode(t, err, coord.CodeLeaseHeld)
	if r := read(t, operator, key(t, 1)); !r.Held || r.Epoch != 1 {
		t.Errorf("recorded %+v", r)
	}
}
