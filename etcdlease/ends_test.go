package etcdlease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A lease that etcd ends before its time is heard of, by tenure, and refused from then on.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	g := acquire(t, s, key(t, 1), "a", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	type end struct {
		key      coord.Key
		revision coord.Revision
	}
	heard, stopped := make(chan end, 10), make(chan error, 1)
	go func() { stopped <- s.WatchEnds(ctx, func(k coord.Key, r coord.Revision) { heard <- end{k, r} }) }()

	// The release of another key tells that the watch stands. It may be heard of late.
	released := make(map[end]bool)
	for standing := false; !standing; {
		other := acquire(t, s, key(t, 2), "a", time.Minute)
		if err := s.Release(t.Context(), other.Tenure); err != nil {
			t.Fatal(err)
		}
		released[end{key(t, 2), other.Revision}] = true
		select {
		case e := <-heard:
			if !released[e] {
				t.Fatalf("heard of %+v, want one of the releases %+v", e, released)
			}
			standing = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	if _, err := etcd(t).Delete(t.Context(), prefix(t)+"owner/"+key(t, 1).String()); err != nil {
		t.Fatal(err)
	}
	e := <-heard
	for released[e] {
		e = <-heard
	}
	if e != (end{key(t, 1), g.Revision}) {
		t.Errorf("heard of %+v, want the end of %+v", e, g)
	}
	before := w.count(keepAliveMethod)
	wantCode(t, renewErr(t, s, g.Tenure, time.Minute), coord.CodeLeaseLost)
	if n := w.count(keepAliveMethod) - before; n != 0 {
		t.Errorf("etcd was asked %d times about a lease that is known to have ended", n)
	}
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
}
