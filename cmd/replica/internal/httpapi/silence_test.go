package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// A standIn owns tenants, can be stopped as a process can, and counts what it is asked.
type standIn struct {
	*httptest.Server
	running  atomic.Pointer[chan struct{}] // closed while it runs
	requests atomic.Int32                  // questions whether it lives excepted
}

func newStandIn(t *testing.T, answer http.HandlerFunc) *standIn {
	s := &standIn{}
	running := make(chan struct{})
	close(running)
	s.running.Store(&running)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/livez" {
			s.requests.Add(1)
		}
		<-*s.running.Load()
		if r.URL.Path != "/livez" {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Server.Close)
	return s
}

// stop stops it until resume is called.
func (s *standIn) stop() (resume func()) {
	stopped := make(chan struct{})
	s.running.Store(&stopped)
	return sync.OnceFunc(func() { close(stopped) })
}

// An owner that is stopped keeps its connections open. It is noticed long before the time
// for its answer is up; requests that were sent have an unknown outcome, and the next ones
// are refused at once and not sent, until it answers again.
func TestStoppedOwner(t *testing.T) {
	f := newFleet(t)
	b := f.node("b", func(o *httpapi.Options, _ *router.Options) { o.ForwardTimeout = 25 * time.Second })
	b.api.SetOwnerPatience(50*time.Millisecond, 200*time.Millisecond)
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	owner := newStandIn(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	f.leases.setAddress("owner", owner.URL)
	b.must(201, "POST", tenant+"/events", event("before"))
	resume := owner.stop()
	defer resume()
	began := time.Now()
	b.refused(503, coord.CodeOutcomeUnknown, "POST", tenant+"/events", event("x"))
	if took := time.Since(began); took > 20*time.Second {
		t.Fatalf("the answer took %v", took)
	}
	sent := owner.requests.Load()
	for range 10 {
		p := b.refused(503, httpapi.CodeOwnerUnreachable, "POST", tenant+"/events", event("x"))
		if !strings.Contains(p.Detail, "was not asked") {
			t.Fatalf("refused with %q", p.Detail)
		}
	}
	if n := owner.requests.Load(); n != sent {
		t.Errorf("%d requests were sent to an owner that had just not answered", n-sent)
	}
	resume()
	for deadline := time.Now().Add(time.Minute); b.do("POST", tenant+"/events", event("x")).status != 201; {
		if time.Now().After(deadline) {
			t.Fatal("the owner answers again, and is sent nothing")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// An owner that is silent keeps nobody from the tenant once another one has it.
func TestTenantOfAStoppedOwnerMoves(t *testing.T) {
	f := newFleet(t)
	b := f.node("b", func(o *httpapi.Options, _ *router.Options) { o.ForwardTimeout = 25 * time.Second })
	b.api.SetOwnerPatience(50*time.Millisecond, 200*time.Millisecond)
	grant, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	owner := newStandIn(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	f.leases.setAddress("owner", owner.URL)
	b.must(201, "POST", tenant+"/events", event("before"))
	defer owner.stop()()
	b.refused(503, httpapi.CodeOwnerUnreachable, "GET", tenant+"/events", "")
	if err := f.leases.Release(t.Context(), grant.Tenure); err != nil {
		t.Fatal(err)
	}
	if got := b.must(201, "POST", tenant+"/events", event("x")); got.header.Get(httpapi.HeaderReplica) != "b" {
		t.Errorf("done by %s", got.header.Get(httpapi.HeaderReplica))
	}
}

// An owner that takes long over a request but lives is waited for.
func TestSlowOwner(t *testing.T) {
	f := newFleet(t)
	b := f.node("b", func(o *httpapi.Options, _ *router.Options) { o.ForwardTimeout = 25 * time.Second })
	b.api.SetOwnerPatience(10*time.Millisecond, 20*time.Second)
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	lived := make(chan struct{})
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			if asked.Add(1) == 3 {
				close(lived)
			}
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // or the end of the request would not be noticed
		select {
		case <-lived:
			w.WriteHeader(201)
		case <-r.Context().Done():
		}
	}))
	defer owner.Close()
	f.leases.setAddress("owner", owner.URL)
	b.must(201, "POST", tenant+"/events", event("x"))
}

// What one owner may have done is not reported as refused because the next one was not
// reached.
func TestUnknownOutcomeStaysUnknown(t *testing.T) {
	f := newFleet(t)
	b := f.node("b")
	grant, err := f.leases.Acquire(t.Context(), mustKey(t), "first", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if err := f.leases.Release(r.Context(), grant.Tenure); err != nil {
			t.Error(err)
		}
		if _, err := f.leases.Acquire(r.Context(), mustKey(t), "second", 10*time.Minute); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}))
	defer first.Close()
	f.leases.setAddress("first", first.URL)
	f.leases.setAddress("second", "http://127.0.0.1:1")
	b.refused(503, coord.CodeOutcomeUnknown, "POST", tenant+"/events", event("x"))
}
