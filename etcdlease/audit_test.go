package etcdlease_test

import (
	"context"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// LS-1 to LS-11 in real seconds.
func TestConformance(t *testing.T) {
	t.Parallel()
	coordtest.Test(t, subject(open(t, nil, asOften)))
}

// subject leaves a check the time for several requests that etcd, busy with every other
// test, does not answer.
func subject(s coord.LeaseStore) coordtest.Subject {
	return coordtest.Subject{Store: s, TTL: 8 * time.Second, RenewalsUnrecorded: true, Rounds: 5, Racers: 6, CheckTimeout: 5 * time.Minute}
}

// asOften is a time for requests after which a check asks again.
func asOften(c *etcdlease.Config) { timeout(10 * time.Second)(c) }

// inBatches has every single renewal go the way of many.
type inBatches struct{ *etcdlease.Store }

func (s inBatches) Renew(ctx context.Context, ten coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	r := s.RenewAll(ctx, []coord.Tenure{ten}, ttl)
	return r[0].Grant, r[0].Err
}

func TestConformanceInBatches(t *testing.T) {
	t.Parallel()
	coordtest.Test(t, subject(inBatches{open(t, nil, asOften)}))
}

func ops(trail []coord.AuditEntry) (ops []coord.AuditOp) {
	for _, e := range trail {
		ops = append(ops, e.Op)
	}
	return ops
}

// The trail goes back to etcd's compaction and no further, and neither a key that
// was never acquired nor one whose history is gone has one.
func TestAuditAfterCompaction(t *testing.T) {
	t.Parallel()
	server := embedetcd.StartT(t)
	s := open(t, nil, func(c *etcdlease.Config) { c.Endpoints = server.Endpoints() })
	c := clientOf(t, server.Endpoints())
	first := acquire(t, s, key(t, 1), "a", ttl)
	if err := s.Release(t.Context(), first.Tenure); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, s, key(t, 1), "b", ttl)
	if _, err := c.Compact(t.Context(), int64(second.Revision)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MarkForgotten(t.Context(), second.Tenure); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), second.Tenure); err != nil {
		t.Fatal(err)
	}
	trail, err := s.Audit(t.Context(), key(t, 1))
	if got := ops(trail); err != nil || len(got) != 2 || got[0] != coord.AuditForget || got[1] != coord.AuditRelease || trail[1].Epoch != 2 || trail[1].Owner != "b" {
		t.Fatalf("after a compaction at the second grant: %+v, %v", trail, err)
	}
	head, err := c.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), head.Header.Revision); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if trail, err := s.Audit(t.Context(), key(t, n)); err != nil || len(trail) != 0 {
			t.Errorf("key %d without a history: %+v, %v", n, trail, err)
		}
	}
}

// A renewal of a tenure whose key was deleted by somebody else, while this Store's
// next acquisition of it is under way, does not take the new owner key for its own.
func TestRenewalIsNotMistakenForTheNextTenure(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, c := open(t, w), etcd(t)
	old := acquire(t, s, key(t, 1), "a", ttl)
	if _, err := c.Delete(t.Context(), prefix(t)+"owner/"+key(t, 1).String()); err != nil {
		t.Fatal(err)
	}
	applied, hear := make(chan struct{}), make(chan struct{})
	w.set(func(w *wire) {
		w.answered = func(method string) {
			if method == txnMethod {
				w.set(func(w *wire) { w.answered = nil })
				close(applied)
				<-hear
			}
		}
	})
	granted := make(chan coord.Grant, 1)
	go func() {
		g, _ := s.Acquire(t.Context(), key(t, 1), "a", ttl)
		granted <- g
	}()
	<-applied
	wantCode(t, renewErr(t, s, old.Tenure, ttl), coord.CodeLeaseLost)
	close(hear)
	g := <-granted
	if g.Epoch != 2 {
		t.Fatalf("granted %+v", g)
	}
	if r, err := s.Renew(t.Context(), g.Tenure, ttl); err != nil || r.Epoch != 2 {
		t.Errorf("renewed %+v, %v", r, err)
	}
}
