package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// ID-6, trap 61: one rule for ids at every endpoint; nothing is asked or made.
func TestIDsAreCheckedFirst(t *testing.T) {
	n := newFleet(t).node("a")
	endpoints := []struct{ method, suffix string }{
		{"GET", ""}, {"DELETE", ""}, {"POST", "/open"}, {"POST", "/events"}, {"GET", "/events"},
		{"POST", "/query"}, {"POST", "/exec"}, {"POST", "/snapshot"}, {"POST", "/handoff"}, {"POST", "/receive"}, {"POST", "/abandon"},
	}
	bad := []string{
		"..", ".", "%2e%2e", "%2E%2E%2f%2e%2e", "a%3fmode=memory", "a%23b", "%00", "a%00b", "%ff", "a%0ab", "%20", "",
		strings.Repeat("a", 300), "T" + tenantID[1:], tenantID + "%00", "%C3%A9", `a%5Cb`, "t-%2e%2e",
	}
	for _, e := range endpoints {
		for _, id := range bad {
			n.refused(400, coord.CodeIDInvalid, e.method, "/v1/organizations/acme/tenants/"+id+e.suffix, "")
			n.refused(400, coord.CodeIDInvalid, e.method, "/v1/organizations/"+id+"/tenants/"+tenantID+e.suffix, "")
		}
		for _, id := range []string{"acme", "t-", tenantID + "0", "a//b"} { // which may begin an organization's name
			n.refused(400, coord.CodeIDInvalid, e.method, "/v1/organizations/acme/tenants/"+id+e.suffix, "")
		}
	}
	n.refused(400, coord.CodeIDInvalid, "GET", "/v1/leases?organization=..", "")
	n.refused(400, coord.CodeIDInvalid, "GET", "/v1/leases?after=acme", "")
	n.wantUntouched("bad ids")
}

// A path that is merely spelled in a roundabout way is no endpoint: no redirect
// leads to one.
func TestUnknownPathsAndMethods(t *testing.T) {
	n := newFleet(t).node("a")
	for _, path := range []string{
		"/", "/v1", "/v2", "/v1/", "/livez/", "/v1/../livez", "/v1/organizations/acme", "/v1/organizations/acme//tenants",
		tenant + "/", tenant + "/explode", tenant + "/events/", tenant + "//events", tenant + "/./events", tenant + "/events/1", tenant + "/%65vents/x",
	} {
		n.refused(404, httpapi.CodeNotFound, "GET", path, "")
	}
	for method, path := range map[string]string{"PUT": tenant + "/events", "PATCH": tenant, "POST": "/livez", "DELETE": tenant + "/open"} {
		got := n.must(405, method, path, "")
		if p := got.problem(t); p.Code != string(httpapi.CodeMethodNotAllowed) || got.header.Get("Allow") == "" {
			t.Errorf("%s %s: %s, Allow %q", method, path, got, got.header.Get("Allow"))
		}
	}
	n.wantUntouched("unknown paths")
}

func TestRequestsAreCheckedBeforeTheTenant(t *testing.T) {
	n := newFleet(t).node("a")
	invalid := []struct{ method, path, body string }{
		{"POST", "/events", ``}, {"POST", "/events", `{`}, {"POST", "/events", `[]`}, {"POST", "/events", event("x") + "x"},
		{"POST", "/events", event("x") + event("y")}, {"POST", "/events", `{"colour":1}`}, {"POST", "/events", "{\"actor\":\"\xff\"}"},
		{"POST", "/events?x=1", event("x")},
		{"POST", "/query", `{}`}, {"POST", "/query", `{"sql":"SELECT ?","args":[[1]]}`}, {"POST", "/query", `{"sql":1}`},
		{"POST", "/exec", `{}`}, {"POST", "/exec", `{"statements":[]}`}, {"POST", "/exec", `{"statements":[{"sql":""}]}`},
		{"GET", "/events?limit=0", ``}, {"GET", "/events?limit=1001", ``}, {"GET", "/events?after=-1", ``}, {"GET", "/events?after=x", ``},
		{"GET", "/events?limit=1&limit=2", ``}, {"GET", "/events?colour=red", ``}, {"GET", "/events?a=%zz", ``}, {"GET", "/events", `{}`},
		{"POST", "/open", `[]`}, {"POST", "/snapshot", `{"x":1}`}, {"POST", "/handoff", `{"from":"b"}`},
		{"POST", "/abandon", `x`}, {"POST", "/receive", `{}`}, {"POST", "/receive?x=1", ``}, {"DELETE", "", `{"really":true}`}, {"GET", "", `x`},
	}
	for _, r := range invalid {
		n.refused(400, httpapi.CodeRequestInvalid, r.method, tenant+r.path, r.body)
	}
	n.refused(400, "EVENT_INVALID", "POST", tenant+"/events", `{"actor":"a","payload":{}}`)
	n.refused(400, httpapi.CodeRequestInvalid, "POST", tenant+"/open", "", httpapi.HeaderForward, "always")
	n.refused(400, httpapi.CodeRequestInvalid, "POST", tenant+"/open", "", httpapi.HeaderTimeout, "0")
	n.refused(403, coord.CodeSQLRefused, "POST", tenant+"/exec", `{"statements":[{"sql":"COMMIT"}]}`)
	n.refused(403, httpapi.CodeCrossOrigin, "POST", tenant+"/open", "", "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site")
	n.wantUntouched("invalid requests")
}

// RE-7: a body is bounded, whether or not it says how long it is.
func TestBodyTooLarge(t *testing.T) {
	n := newFleet(t).node("a", func(o *httpapi.Options, _ *router.Options) { o.MaxBody = 1000 })
	n.refused(413, httpapi.CodeBodyTooLarge, "POST", tenant+"/events", strings.Repeat("x", 1001))
	req, err := http.NewRequest("POST", n.URL+tenant+"/events", io.MultiReader(strings.NewReader(strings.Repeat("x", 1001))))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.fleet.client.Do(req) // chunked
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked: status %d", resp.StatusCode)
	}
	n.wantUntouched("large bodies")
}

// RE-7: a slow client gets 408, and until then holds nothing: the tenant is handed
// off and the router closed meanwhile.
func TestSlowBodyHoldsNothing(t *testing.T) {
	n := newFleet(t).node("a", func(o *httpapi.Options, _ *router.Options) { o.BodyTimeout = 300 * time.Millisecond })
	n.must(200, "POST", tenant+"/open", "")
	conn, err := net.Dial("tcp", n.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", tenant)
	n.must(200, "POST", tenant+"/handoff", "")
	if err := n.router.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	_, _ = io.Copy(&body, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 408 || !strings.Contains(body.String(), "BODY_TIMEOUT") || !resp.Close {
		t.Errorf("got %d %s, close %v", resp.StatusCode, body.String(), resp.Close)
	}
}

// The deadline of the body does not cut the work short.
func TestWorkOutlastsTheBodyTimeout(t *testing.T) {
	n := newFleet(t).node("a", func(o *httpapi.Options, _ *router.Options) { o.BodyTimeout = 200 * time.Millisecond })
	n.must(200, "POST", tenant+"/open", "")
	began := time.Now()
	slow := `{"sql":"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x < ?) SELECT count(*) FROM n","args":[%d]}`
	for size := 1_000_000; time.Since(began) < 500*time.Millisecond; size *= 2 {
		began = time.Now()
		n.must(200, "POST", tenant+"/query", fmt.Sprintf(slow, size))
	}
}
