package etcdlease_test

import (
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	a, b := open(t, nil), open(t, nil)
	started := time.UnixMilli(1_700_000_000_123)
	for s, r := range map[*etcdlease.Store]etcdlease.Replica{
		a: {ID: "a-1", Address: "http://127.0.0.1:1", Started: started},
		b: {ID: "b-1", Started: started},
	} {
		if err := s.Register(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Replicas(t.Context())
	if err != nil || len(got) != 2 || got[0].ID != "a-1" || got[0].Address != "http://127.0.0.1:1" || !got[0].Started.Equal(started) || got[1].ID != "b-1" {
		t.Fatalf("registered are %+v, %v", got, err)
	}
	if err := a.Register(t.Context(), etcdlease.Replica{ID: "a-1", Address: "http://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if got, err = b.Replicas(t.Context()); err != nil || len(got) != 2 || got[0].Address != "http://127.0.0.1:2" {
		t.Fatalf("after registering again: %+v, %v", got, err)
	}
	wantCode(t, a.Register(t.Context(), etcdlease.Replica{ID: ""}), coord.CodeIDInvalid)
	a.Close()
	if got, err = b.Replicas(t.Context()); err != nil || len(got) != 1 || got[0].ID != "b-1" {
		t.Fatalf("after Close: %+v, %v", got, err)
	}
}

// A registration whose lease was lost is written again.
func TestRegistrationComesBack(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil), etcd(t)
	if err := s.Register(t.Context(), etcdlease.Replica{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	_, lease := get(t, c, prefix(t)+"replica/a")
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	watch := c.Watch(t.Context(), prefix(t)+"replica/a", clientv3.WithFilterDelete())
	if _, there := get(t, c, prefix(t)+"replica/a"); there != 0 {
		return
	}
	select {
	case <-watch:
	case <-time.After(6 * etcdlease.ReplicaTTL):
		t.Error("the entry did not come back")
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil), etcd(t)
	for n := range 5 {
		g := acquire(t, s, key(t, n), "a", ttl)
		if n == 1 {
			s.Release(t.Context(), g.Tenure)
		}
		if n == 2 {
			s.MarkForgotten(t.Context(), g.Tenure)
		}
	}
	// "acme-" sorts before "acme/": a neighbour whose name begins the same.
	neighbour, err := coord.NewKey("acme-2", key(t, 0).Tenant())
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, s, neighbour, "a", ttl)
	if _, err := c.Put(t.Context(), prefix(t)+"epoch/acme/garbage", "x"); err != nil {
		t.Fatal(err)
	}
	var all []coord.Record
	after := ""
	for {
		page, err := s.List(t.Context(), "acme", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
		after = page[len(page)-1].Key.String()
	}
	if len(all) != 5 || !slices.IsSortedFunc(all, func(a, b coord.Record) int { return slices.Compare([]byte(a.Key.String()), []byte(b.Key.String())) }) {
		t.Fatalf("listed %+v", all)
	}
	if all[0].Key != key(t, 0) || !all[0].Held || all[0].Epoch != 1 || all[1].Held || all[2].ForgottenAt != 1 {
		t.Errorf("listed %+v", all)
	}
	if every, err := s.List(t.Context(), "", "", 0); err != nil || len(every) != 6 {
		t.Errorf("all organizations: %d, %v", len(every), err)
	}
	if rest, err := s.List(t.Context(), "acme", "zz/"+key(t, 1).Tenant(), 0); err != nil || len(rest) != 0 {
		t.Errorf("behind the end: %+v, %v", rest, err)
	}
	for _, bad := range []struct {
		organization, after string
		limit               int
		code                coord.Code
	}{{"Acme", "", 1, coord.CodeIDInvalid}, {"acme", "../x", 1, coord.CodeIDInvalid}, {"acme", "", -1, coord.CodeOptionsInvalid}, {"acme", "", 1001, coord.CodeOptionsInvalid}} {
		_, err := s.List(t.Context(), bad.organization, bad.after, bad.limit)
		wantCode(t, err, bad.code)
	}
}

// Trap 8: an owner key that no live lease will ever remove is visible, with its
// age, and so is one whose owner is not registered; nobody steals either.
func TestInspect(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil), etcd(t)
	if err := s.Register(t.Context(), etcdlease.Replica{ID: "alive"}); err != nil {
		t.Fatal(err)
	}
	acquire(t, s, key(t, 1), "alive", ttl)
	acquire(t, s, key(t, 2), "dead", ttl)
	acquire(t, s, key(t, 3), "dead", ttl)
	over := acquire(t, s, key(t, 4), "dead", ttl)
	if err := s.Release(t.Context(), over.Tenure); err != nil {
		t.Fatal(err)
	}
	owner := prefix(t) + "owner/" + key(t, 3).String()
	value, _ := get(t, c, owner)
	if _, err := c.Put(t.Context(), owner, value); err != nil { // without a lease
		t.Fatal(err)
	}
	records, err := s.List(t.Context(), "acme", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := s.Inspect(t.Context(), records)
	if err != nil || len(stuck) != 2 || stuck[key(t, 2)] != etcdlease.StuckUnregistered || stuck[key(t, 3)] != etcdlease.StuckForever {
		t.Errorf("stuck: %v, %v", stuck, err)
	}
	for _, r := range records {
		if age := time.Since(r.GrantedAt); age < -time.Second || age > time.Minute {
			t.Errorf("%v was granted at %v", r.Key, r.GrantedAt)
		}
	}
	_, err = open(t, nil).Acquire(t.Context(), key(t, 3), "b", ttl)
	wantCode(t, err, coord.CodeLeaseHeld)
}
