package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

type parted struct {
	Epoch     uint64 `json:"epoch"`
	Flushed   bool   `json:"flushed"`
	To        string `json:"to"`
	NextEpoch uint64 `json:"next_epoch"`
}

// RO-18: a tenant goes to the replica that was named, which is told first and serves at
// once, whoever was asked for the move; what is parked meanwhile is done there.
func TestHandoffToReplica(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.node("a"), f.node("b"), f.node("c")
	a.must(201, "POST", tenant+"/events", event("one"))
	end := a.busy()
	handoff := c.inBackground("POST", tenant+"/handoff", `{"to":"b"}`)
	a.await(router.StateDraining)
	var parked []<-chan reply
	for _, n := range []*node{a, b, c} {
		parked = append(parked, n.inBackground("POST", tenant+"/events", event(n.URL)))
	}
	end()
	got := <-handoff
	var p parted
	got.into(t, &p)
	if got.status != 200 || !p.Flushed || p.To != "b" || p.Epoch != 1 || p.NextEpoch != 2 {
		t.Errorf("handoff: %s", got)
	}
	for _, answer := range parked {
		if got := <-answer; got.status != 201 || got.header.Get(httpapi.HeaderReplica) != "b" || got.header.Get(httpapi.HeaderEpoch) != "2" {
			t.Errorf("parked, then %s by %v", got, got.header)
		}
	}
	if h := b.router.HandleOf(mustKey(t)); h == nil || h.RestoredFrom() == nil {
		t.Error("b does not have the tenant")
	}
	// And back, by its new owner.
	b.must(200, "POST", tenant+"/handoff", `{"to":"a"}`)
	if h := a.router.HandleOf(mustKey(t)); h == nil || h.Epoch() != 3 {
		t.Error("a does not have the tenant")
	}
}

// A successor that does not exist or cannot prepare is a clear error, and nothing
// changes.
func TestHandoffToWhoCannot(t *testing.T) {
	f := newFleet(t)
	a := f.node("a")
	full := f.node("full", func(_ *httpapi.Options, o *router.Options) { o.MaxTenants = 1 })
	full.must(200, "POST", strings.Replace(tenant, tenantID, "t-00000000000000000000000000000001", 1)+"/open", "")
	leaving := f.node("leaving")
	leaving.api.BeginDrain()
	gone := httptest.NewServer(nil)
	f.leases.setAddress("gone", gone.URL)
	gone.Close()
	f.leases.setAddress("nowhere", "ftp://x")
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer strange.Close()
	f.leases.setAddress("strange", strange.URL)
	a.must(201, "POST", tenant+"/events", event("one"))

	a.refused(400, httpapi.CodeRequestInvalid, "POST", tenant+"/handoff", `{"to":"a"}`)
	a.refused(404, httpapi.CodeReplicaUnknown, "POST", tenant+"/handoff", `{"to":"nobody"}`)
	for _, to := range []string{"full", "leaving", "gone", "nowhere", "strange"} {
		p := a.refused(503, httpapi.CodeSuccessorUnready, "POST", tenant+"/handoff", `{"to":"`+to+`"}`)
		if !strings.Contains(p.Detail, to) {
			t.Errorf("%s: %s", to, p.Detail)
		}
	}
	if got := a.must(201, "POST", tenant+"/events", event("two")); got.header.Get(httpapi.HeaderEpoch) != "1" {
		t.Errorf("moved all the same: %v", got.header)
	}
}

// A successor that dies when the tenant is on its way leaves it to whoever asks.
func TestSuccessorThatDies(t *testing.T) {
	f := newFleet(t)
	a := f.node("a")
	a.must(201, "POST", tenant+"/events", event("one"))
	dying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		withdraw, err := f.leases.Want(r.Context(), mustKey(t), "dying") // stands on for a while
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { _ = withdraw(t.Context()) })
		_, _ = io.WriteString(w, "{\"copy\":null}\n")
		_ = http.NewResponseController(w).Flush()
	}))
	defer dying.Close()
	f.leases.setAddress("dying", dying.URL)
	var p parted
	a.must(200, "POST", tenant+"/handoff", `{"to":"dying"}`).into(t, &p)
	if !p.Flushed || p.NextEpoch != 0 {
		t.Errorf("handoff: %+v", p)
	}
	got := a.must(201, "POST", tenant+"/events", event("two"))
	if got.header.Get(httpapi.HeaderReplica) != "a" || got.header.Get(httpapi.HeaderEpoch) != "2" {
		t.Errorf("served by %v", got.header)
	}
	if got := a.must(200, "GET", tenant+"/events", ""); !strings.Contains(got.body, `"one"`) {
		t.Errorf("lost: %s", got)
	}
}

// A move that fails is over for the successor too: the tenant does not come to it later.
func TestMoveThatFails(t *testing.T) {
	f := newFleet(t)
	a := f.node("a", func(_ *httpapi.Options, o *router.Options) {
		o.DrainTimeout, o.MinTenure = 100*time.Millisecond, 2*time.Second
	})
	b := f.node("b")
	a.must(201, "POST", tenant+"/events", event("one"))
	end := a.busy()
	a.refused(503, coord.CodeDrainTimeout, "POST", tenant+"/handoff", `{"to":"b"}`)
	deadline := time.Now().Add(time.Minute)
	for {
		wants, err := f.leases.Wants(t.Context(), mustKey(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(wants) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the request still stands: %v", wants)
		}
		time.Sleep(time.Millisecond) // a withdrawal has no event
	}
	// The owner may be honouring the request at this very moment; that ends like the move.
	if err := a.router.HandleOf(mustKey(t)).AwaitSettled(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
	if got := b.must(201, "POST", tenant+"/events", event("two")); got.header.Get(httpapi.HeaderReplica) != "a" {
		t.Errorf("done by %v", got.header)
	}
}

// With tokens asked for, a move is the operator's to order, and the replica that
// receives sees that it was.
func TestHandoffToWithTokens(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a", asking(t)), f.node("b", asking(t))
	a.must(201, "POST", tenant+"/events", event("one"), with(ownToken)...)
	a.refused(403, httpapi.CodeForbidden, "POST", tenant+"/handoff", `{"to":"b"}`, with(ownToken)...)
	b.refused(403, httpapi.CodeForbidden, "POST", tenant+"/receive", "", with(ownToken)...)
	var p parted
	a.must(200, "POST", tenant+"/handoff", `{"to":"b"}`, with(opsToken)...).into(t, &p)
	if p.To != "b" || p.NextEpoch != 2 {
		t.Errorf("handoff: %+v", p)
	}
}

// A successor that answers nothing, as one that was stopped, is given up when its
// registration ends, and the tenant serves on. An id that is none moves nothing.
func TestHandoffToWhoAnswersNothing(t *testing.T) {
	f := newFleet(t)
	a := f.node("a")
	asked, ended := make(chan struct{}), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(ended)
	}))
	defer silent.Close()
	f.leases.setAddress("silent", silent.URL)
	a.must(201, "POST", tenant+"/events", event("one"))
	moved := a.inBackground("POST", tenant+"/handoff", `{"to":"silent"}`)
	<-asked
	f.leases.forgetAddress("silent")
	if got := <-moved; got.status != 503 || !strings.Contains(got.body, string(httpapi.CodeSuccessorUnready)) {
		t.Errorf("handoff: %s", got)
	}
	<-ended
	for _, body := range []string{`{"to":""}`, `{"to":null}`, `{"to":1}`} {
		a.refused(400, httpapi.CodeRequestInvalid, "POST", tenant+"/handoff", body)
	}
	if got := a.must(201, "POST", tenant+"/events", event("two")); got.header.Get(httpapi.HeaderEpoch) != "1" {
		t.Errorf("served by %v", got.header)
	}
}
