package etcdlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// waiting runs WaitReleased in the background until the key is watched.
func waiting(t *testing.T, s *etcdlease.Store, w *wire, k coord.Key) <-chan error {
	t.Helper()
	watched := make(chan struct{})
	once := sync.OnceFunc(func() { close(watched) })
	w.set(func(w *wire) {
		w.received = func(method string) {
			if method == watchMethod {
				once()
			}
		}
	})
	done := make(chan error, 1)
	go func() { done <- s.WaitReleased(t.Context(), k) }()
	<-watched
	return done
}

func TestWaitReleasedWakesAtOnce(t *testing.T) {
	t.Parallel()
	w := &wire{}
	owner, waiter := open(t, nil), open(t, w)
	if err := waiter.WaitReleased(t.Context(), key(t, 1)); err != nil {
		t.Fatalf("a key that was never held: %v", err)
	}
	g := acquire(t, owner, key(t, 1), "a", ttl)
	done := waiting(t, waiter, w, key(t, 1))
	if err := owner.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > soon { // when it would look without being woken
		t.Errorf("woken after %v", took)
	}
	if g := acquire(t, waiter, key(t, 1), "b", ttl); g.Epoch != 2 {
		t.Errorf("granted %+v", g)
	}
}

func TestWaitReleasedWakesAtExpiry(t *testing.T) {
	t.Parallel()
	w := &wire{}
	dying, waiter := open(t, nil), open(t, w)
	acquire(t, dying, key(t, 1), "a", time.Second)
	if err := dying.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting(t, waiter, w, key(t, 1)); err != nil {
		t.Fatal(err)
	}
}

// Trap 23: the delete happened and was compacted away before the watch began.
func TestWaitReleasedAcrossCompaction(t *testing.T) {
	t.Parallel()
	w := &wire{}
	owner, waiter, c := open(t, nil), open(t, w), etcd(t)
	g := acquire(t, owner, key(t, 1), "a", ttl)
	between := sync.OnceFunc(func() {
		if err := owner.Release(t.Context(), g.Tenure); err != nil {
			t.Error(err)
		}
		resp, err := c.Put(t.Context(), prefix(t)+"later", "")
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := c.Compact(t.Context(), resp.Header.Revision); err != nil {
			t.Error(err)
		}
	})
	w.set(func(w *wire) {
		w.stream = func(_ context.Context, method string) error {
			if method == watchMethod {
				between()
			}
			return nil
		}
	})
	released(t, waiter, key(t, 1), soon)
}

// Trap 23: the watch is open and passes nothing.
func TestWaitReleasedThroughSilence(t *testing.T) {
	t.Parallel()
	w := &wire{}
	owner, waiter := open(t, nil), open(t, w)
	g := acquire(t, owner, key(t, 1), "a", time.Second)
	silence := make(chan struct{})
	defer close(silence)
	watched := make(chan struct{})
	once := sync.OnceFunc(func() { close(watched) })
	w.set(func(w *wire) {
		w.received = func(method string) {
			if method == watchMethod {
				once()
				<-silence
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- waiter.WaitReleased(ctx, key(t, 1)) }()
	<-watched
	if err := owner.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Watches that break and reads that fail do not end the wait.
func TestWaitReleasedThroughReconnects(t *testing.T) {
	t.Parallel()
	w := &wire{}
	owner, waiter := open(t, nil), open(t, w)
	g := acquire(t, owner, key(t, 1), "a", ttl)
	gets := 0
	broken := make(chan struct{})
	w.set(func(w *wire) {
		w.unary = func(string, any) fault {
			if gets++; gets <= 2 {
				return loseRequest
			}
			return noFault
		}
		opened := 0
		w.stream = func(_ context.Context, method string) error {
			if method != watchMethod {
				return nil
			}
			if opened++; opened <= 2 {
				return errCut
			}
			if opened == 3 {
				close(broken)
			}
			return nil
		}
	})
	done := make(chan error, 1)
	go func() { done <- waiter.WaitReleased(t.Context(), key(t, 1)) }()
	<-broken
	if err := owner.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWaitReleasedEnds(t *testing.T) {
	t.Parallel()
	owner := open(t, nil)
	acquire(t, owner, key(t, 1), "a", ttl)
	t.Run("WithItsContext", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := owner.WaitReleased(ctx, key(t, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	same := prefix(t)
	t.Run("WithTheStore", func(t *testing.T) {
		w := &wire{}
		waiter := open(t, w, func(c *etcdlease.Config) { c.Prefix = same })
		done := waiting(t, waiter, w, key(t, 1))
		waiter.Close()
		wantCode(t, <-done, coord.CodeLeaseStoreUnavailable)
	})
}
