package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// A frame is one server-sent event.
type frame struct{ id, event, data string }

// A reading is a client of an event stream.
type reading struct {
	t      *testing.T
	status int
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func (n *node) stream(header ...string) *reading {
	n.fleet.t.Helper()
	ctx, cancel := context.WithCancel(n.fleet.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", n.URL+"/v1/events", nil)
	if err != nil {
		n.fleet.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := n.fleet.client.Do(req)
	if err != nil {
		n.fleet.t.Fatal(err)
	}
	n.fleet.t.Cleanup(func() {
		cancel()
		resp.Body.Close()
	})
	return &reading{t: n.fleet.t, status: resp.StatusCode, lines: bufio.NewScanner(resp.Body), cancel: cancel}
}

// next returns the next event, false at the end of the stream.
func (r *reading) next() (f frame, ok bool) {
	for r.lines.Scan() {
		name, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch name {
		case "id":
			f.id = value
		case "event":
			f.event = value
		case "data":
			f.data = value
		case "":
			if f.event != "" {
				return f, true
			}
		}
	}
	return f, false
}

// want reads events up to the last kind and fails unless they are of these kinds.
func (r *reading) want(kinds ...string) (last frame) {
	r.t.Helper()
	for _, kind := range kinds {
		f, ok := r.next()
		if !ok || f.event != kind {
			r.t.Fatalf("got %+v (%v), want %s", f, ok, kind)
		}
		last = f
	}
	return last
}

// observing makes a node whose monitor the test feeds itself.
func observing(f *fleet) (*node, func(router.EventKind)) {
	monitor := httpapi.NewMonitor("test")
	n := f.node("a", func(o *httpapi.Options, r *router.Options) { o.Monitor, r.Observer = monitor, monitor.Observe })
	key := mustKey(f.t)
	return n, func(kind router.EventKind) {
		monitor.Observe(router.Event{Kind: kind, Key: key, Epoch: coord.Epoch(1), Time: time.Now()})
	}
}

// Issue 6, 7: who comes back with the last id gets what came since, once and in order;
// what is kept no more, or was another process's, is said to be missing.
func TestEventStreamResumes(t *testing.T) {
	f := newFleet(t)
	n, happen := observing(f)
	first := n.stream()
	happen(router.EventAcquired)
	happen(router.EventRestored)
	first.want("acquired")
	seen := first.want("restored").id
	first.cancel()

	happen(router.EventRenewed)
	happen(router.EventSnapshot)
	again := n.stream("Last-Event-ID", seen)
	happen(router.EventLost)
	again.want("snapshot", "lost")

	for _, id := range []string{"another-1", seen + "x", "-", strings.Repeat("9", 100)} {
		n.stream("Last-Event-ID", id).want("missed", "acquired", "restored", "snapshot", "lost")
	}
	if f, ok := n.stream("Last-Event-ID", seen).next(); !ok || f.event != "snapshot" {
		t.Errorf("got %+v", f)
	}
	for range 5000 { // more than are kept
		happen(router.EventSnapshotFailed)
	}
	n.stream("Last-Event-ID", seen).want("missed", "snapshot_failed")
}

// Issue 6, 7: there are only so many streams at once, and each that ends makes room.
func TestEventStreamsAreLimited(t *testing.T) {
	f := newFleet(t)
	n, _ := observing(f)
	var open []*reading
	for range httpapi.MaxStreams {
		open = append(open, n.stream())
	}
	n.refused(503, httpapi.CodeTooManyStreams, "GET", "/v1/events", "")
	open[0].cancel()
	for deadline := time.Now().Add(time.Minute); n.stream().status != 200; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a stream that ended made no room")
		}
	}
}

// RE-8: a stream ends when its token is withdrawn.
func TestEventStreamEndsWithItsToken(t *testing.T) {
	f := newFleet(t)
	known := tokens(t)
	var withdrawn atomic.Bool
	n := f.node("a", func(o *httpapi.Options, _ *router.Options) {
		o.PeerToken = func() string { return peerToken }
		o.Tokens = func() *access.Tokens {
			if withdrawn.Load() {
				return nil
			}
			return known
		}
	})
	n.api.SetHeartbeat(10 * time.Millisecond)
	s := n.stream(with(opsToken)...)
	if s.status != 200 {
		t.Fatal(fmt.Sprint("status ", s.status))
	}
	withdrawn.Store(true)
	if f, ok := s.next(); ok || s.lines.Err() != nil {
		t.Errorf("got %+v, %v, want the end of the stream", f, s.lines.Err())
	}
}
