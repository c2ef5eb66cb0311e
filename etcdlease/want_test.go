package etcdlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

func register(t *testing.T, s *etcdlease.Store, id string) {
	t.Helper()
	if err := s.Register(t.Context(), etcdlease.Replica{ID: id}); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s *etcdlease.Store, k coord.Key, asker string) (withdraw func(context.Context) error) {
	t.Helper()
	withdraw, err := s.Want(t.Context(), k, asker)
	if err != nil {
		t.Fatal(err)
	}
	return withdraw
}

// watchWants delivers what WatchWants tells until the test ends.
func watchWants(t *testing.T, s *etcdlease.Store) <-chan coord.Want {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan coord.Want, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.WatchWants(ctx, func(w coord.Want) { told <- w }); !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return told
}

// RO-18: an owner is told what stood before it watched and what comes later, each
// once, and by whom.
func TestWantsReachTheOwner(t *testing.T) {
	t.Parallel()
	owner := open(t, nil)
	asker := open(t, nil, func(c *etcdlease.Config) { c.Address = "http://127.0.0.1:2" })
	register(t, asker, "asker/1") // a slash is part of a name
	want(t, asker, key(t, 1), "asker/1")
	told := watchWants(t, owner)
	if w := <-told; w.Key != key(t, 1) || w.Asker != "asker/1" || w.Address != "http://127.0.0.1:2" || time.Since(w.Since) > time.Minute {
		t.Errorf("told %+v", w)
	}
	want(t, asker, key(t, 1), "asker/1") // again: nothing new
	withdraw := want(t, asker, key(t, 2), "asker/1")
	if w := <-told; w.Key != key(t, 2) {
		t.Errorf("told %+v", w)
	}
	for range 2 {
		if err := withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for n, count := range []int{0, 1, 0} {
		if wants, err := owner.Wants(t.Context(), key(t, n)); err != nil || len(wants) != count {
			t.Errorf("key %d is wanted by %+v, %v", n, wants, err)
		}
	}
	want(t, asker, key(t, 2), "asker/1") // a new request
	if w := <-told; w.Key != key(t, 2) {
		t.Errorf("told %+v", w)
	}
}

// A request vanishes with its asker, and no other does.
func TestWantVanishesWithTheAsker(t *testing.T) {
	t.Parallel()
	owner, dying, c := open(t, nil), open(t, nil), etcd(t)
	staying := open(t, nil)
	register(t, dying, "dying")
	register(t, staying, "staying")
	want(t, dying, key(t, 1), "dying")
	want(t, staying, key(t, 1), "staying")
	if _, lease := get(t, c, prefix(t)+"want/"+key(t, 1).String()+"/dying"); lease == 0 {
		t.Error("the request would outlive its asker")
	}
	dying.Close()
	if wants, err := owner.Wants(t.Context(), key(t, 1)); err != nil || len(wants) != 1 || wants[0].Asker != "staying" {
		t.Errorf("wanted by %+v, %v", wants, err)
	}
	_, err := dying.Want(t.Context(), key(t, 1), "dying")
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	_, err = staying.Want(t.Context(), key(t, 1), "somebody")
	wantCode(t, err, coord.CodeOptionsInvalid)
}

// A request is written again with a registration that was lost.
func TestWantComesBack(t *testing.T) {
	t.Parallel()
	owner, asker, c := open(t, nil), open(t, nil), etcd(t)
	register(t, asker, "asker")
	want(t, asker, key(t, 1), "asker")
	told := watchWants(t, owner)
	<-told
	_, lease := get(t, c, prefix(t)+"replica/asker")
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(6 * etcdlease.ReplicaTTL):
		t.Error("the request did not come back")
	}
}

// A watch of requests that cannot be opened is made up for by listing.
func TestWantsSurviveALostWatch(t *testing.T) {
	t.Parallel()
	w := &wire{}
	owner, asker := open(t, w), open(t, nil)
	register(t, asker, "asker")
	w.set(func(w *wire) {
		w.stream = func(_ context.Context, method string) error {
			if method == watchMethod {
				return errCut
			}
			return nil
		}
	})
	told := watchWants(t, owner)
	want(t, asker, key(t, 1), "asker")
	select {
	case <-told:
	case <-time.After(6 * etcdlease.ReplicaTTL):
		t.Error("the owner was not told")
	}
}
