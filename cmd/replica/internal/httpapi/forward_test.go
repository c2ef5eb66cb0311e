package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

func mustKey(t *testing.T) coord.Key {
	t.Helper()
	key, err := coord.NewKey("acme", tenantID)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// RE-4: a request for a tenant owned elsewhere is done by its owner, and costs the
// lease store one read and no write.
func TestForward(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a"), f.node("b")
	a.must(201, "POST", tenant+"/events", event("one"))
	f.leases.reads.Store(0)
	f.leases.acquires.Store(0)
	got := b.must(201, "POST", tenant+"/events", event("two"))
	if got.header.Get(httpapi.HeaderReplica) != "a" || got.header.Get(httpapi.HeaderEpoch) != "1" {
		t.Errorf("headers: %v", got.header)
	}
	if reads, acquires := f.leases.reads.Load(), f.leases.acquires.Load(); reads != 1 || acquires != 0 {
		t.Errorf("%d reads and %d acquires, want 1 and 0", reads, acquires)
	}
	b.must(200, "POST", tenant+"/events", event("two")) // RE-6
	if got := b.must(200, "GET", tenant+"/events?after=1&limit=5", ""); !strings.Contains(got.body, `"two"`) || strings.Contains(got.body, `"one"`) {
		t.Errorf("the query was not passed on: %s", got)
	}
	b.refused(422, httpapi.CodeSQLFailed, "POST", tenant+"/query", `{"sql":"SELEC"}`)
	b.must(200, "POST", tenant+"/exec", `{"statements":[{"sql":"CREATE TABLE t(a)"}]}`)
	b.must(200, "DELETE", tenant, "")
	if n := b.router.OpenCount(); n != 0 {
		t.Errorf("b opened %d tenants", n)
	}
}

func TestForwardNever(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a"), f.node("b")
	a.must(200, "POST", tenant+"/open", "")
	p := b.refused(421, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"), httpapi.HeaderForward, httpapi.ForwardNever)
	if p.Owner != "a" || p.Address != a.URL || p.Epoch != 1 {
		t.Errorf("owner not told: %+v", p)
	}
	a.must(201, "POST", tenant+"/events", event("x"), httpapi.HeaderForward, httpapi.ForwardNever)
}

// RE-4: at most one hop, no loop, also with records that are wrong about where
// owners are, and with forged marks.
func TestForwardedOnceAtMost(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.node("a"), f.node("b"), f.node("c")
	a.must(200, "POST", tenant+"/open", "")
	f.leases.setAddress("a", c.URL) // b will ask c, which finds that a owns it
	p := b.refused(503, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"))
	if p.Owner != "a" {
		t.Errorf("%+v", p)
	}
	f.leases.setAddress("a", b.URL) // b would ask itself
	b.refused(503, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"))
	f.leases.setAddress("a", "")
	b.refused(409, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"))
	f.leases.setAddress("a", "ftp://127.0.0.1:1/x")
	b.refused(409, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"))
	f.leases.setAddress("a", a.URL)
	b.refused(503, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"), httpapi.HeaderForwarded, "forged")
	a.must(201, "POST", tenant+"/events", event("x"), httpapi.HeaderForwarded, "forged")
}

// A forwarded request never brings back a tenant that its owner has just given up:
// the retry opens it where the client asked.
func TestForwardedRequestOpensNothing(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a"), f.node("b")
	a.must(201, "POST", tenant+"/events", event("one"))
	a.must(200, "POST", tenant+"/handoff", "")
	a.refused(503, coord.CodeHandleClosed, "POST", tenant+"/events", event("two"), httpapi.HeaderForwarded, "b")
	a.refused(503, coord.CodeHandleClosed, "GET", tenant+"/events", "", httpapi.HeaderForwarded, "b")
	if got := b.must(201, "POST", tenant+"/events", event("two")); got.header.Get(httpapi.HeaderReplica) != "b" {
		t.Errorf("done by %s", got.header.Get(httpapi.HeaderReplica))
	}
}

// An owner that is gone, or does not answer, is a 503 within the request's time;
// what may have been done is not reported as refused.
func TestForwardToOwnerThatDoesNotAnswer(t *testing.T) {
	f := newFleet(t)
	b := f.node("b")
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "gone", time.Minute); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.leases.setAddress("gone", "http://"+l.Addr().String())
	l.Close()
	b.refused(503, httpapi.CodeOwnerUnreachable, "POST", tenant+"/events", event("x"))

	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
	}))
	t.Cleanup(silent.Close)
	defer close(release)
	f.leases.setAddress("gone", silent.URL)
	began := time.Now()
	b.refused(503, coord.CodeOutcomeUnknown, "POST", tenant+"/events", event("x"), httpapi.HeaderTimeout, "3000")
	b.refused(503, httpapi.CodeOwnerUnreachable, "GET", tenant+"/events", "", httpapi.HeaderTimeout, "400")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
}

// What the owner is sent: the body, the time that is left, the mark, and nothing
// that belongs to the client's own connection.
func TestForwardedRequest(t *testing.T) {
	f := newFleet(t)
	b := f.node("b")
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", time.Minute); err != nil {
		t.Fatal(err)
	}
	var seen atomic.Pointer[http.Request]
	var body atomic.Value
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body.Store(string(text))
		seen.Store(r)
		h := w.Header()
		h.Set("Connection", "X-Private")
		h.Set("X-Private", "1")
		h.Set("Keep-Alive", "timeout=5")
		h.Set(httpapi.HeaderReplica, "owner")
		h.Set("Location", "http://evil.example/")
		w.WriteHeader(302)
	}))
	defer owner.Close()
	f.leases.setAddress("owner", owner.URL+"/ignored?x#y")
	got := b.must(302, "POST", tenant+"/events", event("x"), "Connection", "X-Hop", "X-Hop", "1", "X-End", "2",
		"Te", "trailers", "Origin", b.URL, httpapi.HeaderTimeout, "5000")
	r := seen.Load()
	if body.Load() != event("x") || r.URL.Path != tenant+"/events" || r.Header.Get("X-End") != "2" || r.Header.Get(httpapi.HeaderForwarded) != "b" {
		t.Errorf("the owner got %s %v %v", r.URL, r.Header, body.Load())
	}
	for _, name := range []string{"X-Hop", "Te", "Origin", "Keep-Alive"} {
		if r.Header.Get(name) != "" {
			t.Errorf("%s was passed on", name)
		}
	}
	if ms := r.Header.Get(httpapi.HeaderTimeout); len(ms) != 4 || ms >= "5000" {
		t.Errorf("the owner has %s ms of 5000", ms)
	}
	if got.header.Get("X-Private") != "" || got.header.Get("Keep-Alive") != "" || got.header.Get(httpapi.HeaderReplica) != "owner" {
		t.Errorf("the client got %v", got.header)
	}
}

// A reply that breaks off breaks off for the client too.
func TestForwardedReplyThatBreaksOff(t *testing.T) {
	f := newFleet(t)
	b := f.node("b")
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", time.Minute); err != nil {
		t.Fatal(err)
	}
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer owner.Close()
	f.leases.setAddress("owner", owner.URL)
	resp, err := f.client.Get(b.URL + tenant + "/events")
	if err != nil {
		return // broken off before the header
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q looks complete", text)
	}
}

// A tenure that ends between finding the handle and the work is found anew, for as long
// as a request is parked, and only if the work was refused.
func TestEndedTenureIsFoundAgain(t *testing.T) {
	a := newFleet(t).node("a", func(o *httpapi.Options, _ *router.Options) { o.ParkTimeout = 4 * time.Second })
	var epochs []coord.Epoch
	err := a.api.Perform(t.Context(), mustKey(t), func(ctx context.Context, h *router.Handle) error {
		if epochs = append(epochs, h.Epoch()); len(epochs) == 1 {
			if err := h.Handoff(ctx); err != nil {
				t.Error(err)
			}
		}
		return h.Run(ctx, func(context.Context, *router.View) error { return nil })
	})
	if err != nil || !slices.Equal(epochs, []coord.Epoch{1, 2}) {
		t.Errorf("worked at epochs %v: %v", epochs, err)
	}
	epochs = nil
	err = a.api.Perform(t.Context(), mustKey(t), func(ctx context.Context, h *router.Handle) error {
		epochs = append(epochs, h.Epoch())
		if err := h.Handoff(ctx); err != nil {
			t.Error(err)
		}
		return h.Run(ctx, func(context.Context, *router.View) error { return nil })
	})
	if !errors.Is(err, coord.CodeHandleClosed) || len(epochs) < 2 {
		t.Errorf("worked at epochs %v: %v", epochs, err)
	}
	last := epochs[len(epochs)-1]
	epochs = nil
	err = a.api.Perform(t.Context(), mustKey(t), func(ctx context.Context, h *router.Handle) error {
		epochs = append(epochs, h.Epoch())
		if err := h.Handoff(ctx); err != nil {
			t.Error(err)
		}
		return &coord.OutcomeUnknownError{Cause: h.Err()}
	})
	if !errors.Is(err, coord.CodeOutcomeUnknown) || !slices.Equal(epochs, []coord.Epoch{last + 1}) {
		t.Errorf("worked at epochs %v: %v", epochs, err)
	}
}

// A read has no unknown outcome: one whose tenure ends under it is done again, and one that
// is too late to be sent is refused, not said to have written.
func TestReadsHaveNoUnknownOutcome(t *testing.T) {
	a := newFleet(t).node("a")
	var epochs []coord.Epoch
	err := a.api.PerformRead(t.Context(), mustKey(t), func(ctx context.Context, h *router.Handle) error {
		epochs = append(epochs, h.Epoch())
		return h.Run(ctx, func(ctx context.Context, _ *router.View) error {
			if len(epochs) == 1 {
				return h.Abandon(ctx)
			}
			return nil
		})
	})
	if err != nil || !slices.Equal(epochs, []coord.Epoch{1, 2}) {
		t.Errorf("read at epochs %v: %v", epochs, err)
	}
	err = a.api.PerformRead(t.Context(), mustKey(t), func(ctx context.Context, h *router.Handle) error {
		err := h.Run(ctx, func(context.Context, *router.View) error { return nil })
		return errors.Join(err, h.Abandon(ctx))
	})
	if !errors.Is(err, coord.CodeFenced) || errors.Is(err, coord.CodeOutcomeUnknown) || strings.Contains(err.Error(), "written") {
		t.Errorf("a read that could not be confirmed: %v", err)
	}
}

// RE-2: an earlier incarnation at the same address cannot be asked.
func TestOwnerWasThisAddress(t *testing.T) {
	f := newFleet(t)
	b := f.node("b", func(o *httpapi.Options, _ *router.Options) { f.leases.setAddress("b-before", o.Address) })
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "b-before", time.Minute); err != nil {
		t.Fatal(err)
	}
	b.refused(503, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"))
	if got := b.must(200, "GET", "/metrics", ""); !strings.Contains(got.body, `leasehold_forwards_total{outcome="answered"} 0`) {
		t.Error("it asked itself")
	}
}
