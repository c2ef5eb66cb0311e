package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// busy keeps a call of Run in flight, so that a drain does not end.
func (n *node) busy() (end func()) {
	n.fleet.t.Helper()
	h := n.router.HandleOf(mustKey(n.fleet.t))
	running, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Run(context.Background(), func(context.Context, *router.View) error {
			close(running)
			<-release
			return nil
		})
	}()
	<-running
	return func() { close(release); <-done }
}

// inBackground sends a request whose answer comes later.
func (n *node) inBackground(method, path, body string, header ...string) <-chan reply {
	answer := make(chan reply, 1)
	go func() { answer <- n.do(method, path, body, header...) }()
	return answer
}

// await waits until the tenant is in the state on this replica.
func (n *node) await(state router.State) {
	n.fleet.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for n.router.HandleOf(mustKey(n.fleet.t)).State() != state {
		if time.Now().After(deadline) {
			n.fleet.t.Fatalf("the tenant is not %s", state)
		}
		time.Sleep(time.Millisecond) // a state has no event of its own here
	}
}

// A request that meets a handoff is parked, wherever it came in, and is done by whoever
// has the tenant afterwards.
func TestParkedWhileHandedOff(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a"), f.node("b")
	a.must(201, "POST", tenant+"/events", event("one"))
	end := a.busy()
	handoff := a.inBackground("POST", tenant+"/handoff", "")
	a.await(router.StateDraining)
	direct := a.inBackground("POST", tenant+"/events", event("two"))
	forwarded := b.inBackground("POST", tenant+"/events", event("three"))
	// A handoff is refused at once: that another one is under way is the answer.
	a.refused(503, coord.CodeDraining, "POST", tenant+"/handoff", "")
	select {
	case got := <-direct:
		t.Fatalf("answered while the tenant drains: %s", got)
	case got := <-forwarded:
		t.Fatalf("answered while the tenant drains: %s", got)
	case <-time.After(100 * time.Millisecond):
	}
	end()
	if got := <-handoff; got.status != 200 {
		t.Errorf("handoff: %s", got)
	}
	for _, answer := range []<-chan reply{direct, forwarded} {
		if got := <-answer; got.status != 201 || got.header.Get(httpapi.HeaderEpoch) != "2" {
			t.Errorf("parked, then %s at epoch %s", got, got.header.Get(httpapi.HeaderEpoch))
		}
	}
}

// A handoff that fails lets what is parked go on where it is.
func TestParkedWhileAHandoffFails(t *testing.T) {
	f := newFleet(t)
	a := f.node("a", func(_ *httpapi.Options, o *router.Options) { o.DrainTimeout = 3 * time.Second })
	a.must(201, "POST", tenant+"/events", event("one"))
	defer a.busy()()
	handoff := a.inBackground("POST", tenant+"/handoff", "")
	a.await(router.StateDraining)
	a.must(201, "POST", tenant+"/events", event("two"))
	if got := <-handoff; got.problem(t).Code != string(coord.CodeDrainTimeout) {
		t.Errorf("handoff: %s", got)
	}
}

// Parking ends: after ParkTimeout, and before the client's own time is up.
func TestParkingIsBounded(t *testing.T) {
	f := newFleet(t)
	const park = 2 * time.Second
	a := f.node("a", func(o *httpapi.Options, _ *router.Options) { o.ParkTimeout = park })
	b := f.node("b")
	a.must(201, "POST", tenant+"/events", event("one"))
	end := sync.OnceFunc(a.busy())
	defer end()
	handoff := a.inBackground("POST", tenant+"/handoff", "", httpapi.HeaderTimeout, "60000")
	a.await(router.StateDraining)
	began := time.Now()
	a.refused(503, coord.CodeDraining, "POST", tenant+"/events", event("two"))
	if took := time.Since(began); took < park {
		t.Errorf("refused after %v", took)
	}
	b.refused(503, coord.CodeDraining, "POST", tenant+"/events", event("two"))
	began = time.Now()
	a.refused(503, coord.CodeDraining, "POST", tenant+"/events", event("two"), httpapi.HeaderTimeout, "1000")
	if took := time.Since(began); took < 800*time.Millisecond {
		t.Errorf("refused after %v of a second", took)
	}
	end()
	<-handoff
}

// An owner's refusal is passed on as it is, unless the tenant is somewhere else by then:
// then it is followed, at ever newer epochs.
func TestRefusedRequestFollowsTheTenant(t *testing.T) {
	f := newFleet(t)
	b := f.node("b")
	key := mustKey(t)
	moves := false
	asked := 0
	var grant coord.Grant
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if got := r.Header.Get(httpapi.HeaderEpoch); got != fmt.Sprint(uint64(grant.Epoch)) {
			t.Errorf("asked for epoch %q of %d", got, grant.Epoch)
		}
		if moves {
			if err := f.leases.Release(r.Context(), grant.Tenure); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Retry-After", "1")
		w.Header().Set(httpapi.HeaderReplica, "owner")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"DRAINING","detail":"as the owner put it"}`)
	}))
	defer owner.Close()
	f.leases.setAddress("owner", owner.URL)
	var err error
	if grant, err = f.leases.Acquire(t.Context(), key, "owner", time.Minute); err != nil {
		t.Fatal(err)
	}
	got := b.do("POST", tenant+"/events", event("one"), httpapi.HeaderEpoch, "77")
	if got.status != 503 || !strings.Contains(got.body, "as the owner put it") || got.header.Get(httpapi.HeaderReplica) != "owner" || asked != 1 {
		t.Errorf("asked %d times: %s %v", asked, got, got.header)
	}
	moves = true
	if got := b.must(201, "POST", tenant+"/events", event("one")); got.header.Get(httpapi.HeaderReplica) != "b" || got.header.Get(httpapi.HeaderEpoch) != "2" {
		t.Errorf("done by %v", got.header)
	}
}

// An owner that has gone after it gave the tenant back is not asked for long.
func TestOwnerThatLeftIsNotMissed(t *testing.T) {
	f := newFleet(t)
	b := f.node("b")
	grant, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(nil)
	f.leases.setAddress("owner", gone.URL)
	gone.Close()
	b.refused(503, httpapi.CodeOwnerUnreachable, "POST", tenant+"/events", event("one"))
	f.leases.afterRead(func() {
		if err := f.leases.Release(t.Context(), grant.Tenure); err != nil {
			t.Error(err)
		}
	})
	if got := b.must(201, "POST", tenant+"/events", event("one")); got.header.Get(httpapi.HeaderReplica) != "b" {
		t.Errorf("done by %v", got.header)
	}
}

// A forwarded request carries the epoch that it is meant for: an owner of an older one
// does not touch it, and a forged epoch costs only its sender.
func TestForwardedEpoch(t *testing.T) {
	a := newFleet(t).node("a")
	a.must(200, "POST", tenant+"/open", "")
	marked := func(epoch string) []string {
		return []string{httpapi.HeaderForwarded, "forged", httpapi.HeaderEpoch, epoch}
	}
	a.refused(503, coord.CodeLeaseLost, "POST", tenant+"/events", event("x"), marked("2")...)
	for _, bad := range []string{"0", "-1", "x", "99999999999999999999"} {
		a.refused(400, httpapi.CodeRequestInvalid, "POST", tenant+"/events", event("x"), marked(bad)...)
	}
	if got := a.must(200, "GET", tenant+"/events", ""); strings.Contains(got.body, `"x"`) {
		t.Errorf("something was appended: %s", got)
	}
	a.must(201, "POST", tenant+"/events", event("x"), marked("1")...)
	a.must(201, "POST", tenant+"/events", event("y"), httpapi.HeaderEpoch, "77") // means nothing without the mark
}
