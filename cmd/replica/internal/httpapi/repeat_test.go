package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
)

// RE-6: an owner that hands the tenant off and goes, and with it the answer, costs a
// client nothing where doing the work twice is doing it once. Elsewhere nobody may guess.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a"), f.node("b")
	leaving := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.api.ServeHTTP(httptest.NewRecorder(), r) // it works, and its answer is lost
		if err := b.router.HandleOf(mustKey(t)).Handoff(t.Context()); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}))
	defer leaving.Close()
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"append with a key", "POST", tenant + "/events", event("one"), 200}, // the event is there
		{"read", "GET", tenant + "/events", "", 200},
		{"append without a key", "POST", tenant + "/events", `{"actor":"a","kind":"k","payload":{}}`, 503},
		{"statements", "POST", tenant + "/exec", `{"statements":[{"sql":"CREATE TABLE x(y)"}]}`, 503},
	} {
		if h := a.router.HandleOf(mustKey(t)); h != nil {
			if err := h.Handoff(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f.leases.setAddress("b", b.URL)
		b.must(200, "POST", tenant+"/open", "")
		f.leases.setAddress("b", leaving.URL)
		got := a.do(c.method, c.path, c.body)
		if got.status != c.status || got.status == 200 && got.header.Get(httpapi.HeaderReplica) != "a" {
			t.Errorf("%s: %s by %v", c.name, got, got.header)
		}
		var p problem
		if got.status == 503 {
			if got.into(t, &p); p.Code != string(coord.CodeOutcomeUnknown) {
				t.Errorf("%s: %s", c.name, got)
			}
		}
	}
}
