package httpapi_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

const (
	otherID = "t-00000000000000000000000000000002"
	other   = "/v1/organizations/acme/tenants/" + otherID
)

// The tokens of a fleet whose replicas ask for them.
var (
	opsToken  = access.NewToken()
	ownToken  = access.NewToken() // of the tenant
	bothToken = access.NewToken() // of the tenant and the other one
	peerToken = access.NewToken()
)

func tokens(t *testing.T) *access.Tokens {
	t.Helper()
	var file strings.Builder
	for token, entry := range map[string]struct {
		role    access.Role
		tenants []string
	}{
		opsToken:  {access.Operator, nil},
		peerToken: {access.Peer, nil},
		ownToken:  {access.Tenant, []string{"acme/" + tenantID}},
		bothToken: {access.Tenant, []string{"acme/" + tenantID, "acme/" + otherID}},
	} {
		grant, err := access.NewGrant(entry.role, "x", entry.tenants)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&file, grant.Entry(token))
	}
	known, err := access.Parse([]byte(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// asking makes a node ask for tokens.
func asking(t *testing.T) func(*httpapi.Options, *router.Options) {
	known := tokens(t)
	return func(o *httpapi.Options, _ *router.Options) {
		o.Tokens, o.PeerToken = func() *access.Tokens { return known }, func() string { return peerToken }
	}
}

func with(token string) []string { return []string{"Authorization", "Bearer " + token} }

// status sends a request and leaves the body of the answer, which may be a stream.
func (n *node) status(method, path string, header ...string) int {
	n.fleet.t.Helper()
	ctx, cancel := context.WithCancel(n.fleet.t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.URL+path, nil)
	if err != nil {
		n.fleet.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := n.fleet.client.Do(req)
	if err != nil {
		n.fleet.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Who may use an endpoint. A new one has to be entered here, and in its route.
type whoMay struct {
	anybody bool // without a token
	tenant  bool // the tenant in the path
}

var decided = map[string]whoMay{
	"GET /livez":      {anybody: true},
	"GET /readyz":     {anybody: true},
	"GET /metrics":    {},
	"GET /v1/replica": {},
	"GET /v1/tenants": {},
	"GET /v1/leases":  {},
	"GET /v1/events":  {},

	"GET /v1/organizations/{organization}/tenants/{tenant}":           {tenant: true},
	"POST /v1/organizations/{organization}/tenants/{tenant}/open":     {tenant: true},
	"POST /v1/organizations/{organization}/tenants/{tenant}/events":   {tenant: true},
	"GET /v1/organizations/{organization}/tenants/{tenant}/events":    {tenant: true},
	"POST /v1/organizations/{organization}/tenants/{tenant}/query":    {tenant: true},
	"POST /v1/organizations/{organization}/tenants/{tenant}/exec":     {tenant: true},
	"POST /v1/organizations/{organization}/tenants/{tenant}/snapshot": {tenant: true},
	"POST /v1/organizations/{organization}/tenants/{tenant}/handoff":  {},
	"POST /v1/organizations/{organization}/tenants/{tenant}/abandon":  {},
	"POST /v1/organizations/{organization}/tenants/{tenant}/receive":  {},
	"DELETE /v1/organizations/{organization}/tenants/{tenant}":        {},
}

// RE-8: every endpoint, with every kind of token. A tenant's token reaches its own
// tenant and nothing else.
func TestWhoMayUseWhat(t *testing.T) {
	n := newFleet(t).node("a", asking(t))
	routes := n.api.Routes()
	for pattern := range decided {
		if !slices.Contains(routes, pattern) {
			t.Errorf("there is no %s any more", pattern)
		}
	}
	for _, pattern := range routes {
		may, known := decided[pattern]
		if !known {
			t.Errorf("who may use %s? say so in its route and in this test", pattern)
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		at := func(id string) string {
			return strings.NewReplacer("{organization}", "acme", "{tenant}", id).Replace(path)
		}
		ofTenants := strings.Contains(path, "{tenant}")
		for _, c := range []struct {
			who    string
			id     string
			header []string
			may    bool
			status int // of a refusal
		}{
			{"nobody", tenantID, nil, may.anybody, 401},
			{"a stranger", tenantID, with(access.NewToken()), may.anybody, 401},
			{"two tokens", tenantID, append(with(ownToken), with(opsToken)...), may.anybody, 401},
			{"another scheme", tenantID, []string{"Authorization", "Basic " + opsToken}, may.anybody, 401},
			{"the operator", tenantID, with(opsToken), true, 0},
			{"the tenant", tenantID, with(ownToken), may.anybody || may.tenant, 403},
			{"the tenant, at the other", otherID, with(ownToken), may.anybody, 403},
			{"both tenants, at the other", otherID, with(bothToken), may.anybody || may.tenant, 403},
			{"a peer", tenantID, with(peerToken), may.anybody, 403},
			{"a peer that forwards for itself", tenantID, append(with(peerToken), httpapi.HeaderForwarded, "b", httpapi.HeaderPeer, peerToken), may.anybody, 403},
			{"a peer that forwards for the tenant", otherID, append(with(ownToken), httpapi.HeaderForwarded, "b", httpapi.HeaderPeer, peerToken), may.anybody, 403},
			{"a peer that forwards for nobody", tenantID, []string{httpapi.HeaderForwarded, "b", httpapi.HeaderPeer, peerToken}, may.anybody, 401},
			{"a forged mark", tenantID, append(with(opsToken), httpapi.HeaderForwarded, "b"), may.anybody, 403},
			{"a mark that shows the client's token", tenantID, append(with(opsToken), httpapi.HeaderForwarded, "", httpapi.HeaderPeer, opsToken), may.anybody, 403},
		} {
			if c.id == otherID && !ofTenants && c.who != "a peer that forwards for the tenant" {
				continue
			}
			got := n.status(method, at(c.id), c.header...)
			if allowed := got != 401 && got != 403; allowed != c.may || !c.may && got != c.status {
				t.Errorf("%s %s by %s: %d", method, at(c.id), c.who, got)
			}
		}
	}
}

// Trap 61, RE-8: no path, header or body takes a tenant's token to another tenant.
func TestNoWayRoundToAnotherTenant(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a", asking(t)), f.node("b", asking(t))
	a.must(201, "POST", tenant+"/events", event("own"), with(opsToken)...)
	a.must(201, "POST", other+"/events", event("theirs"), with(opsToken)...)
	before := a.must(200, "GET", other, "", with(opsToken)...).body

	for _, path := range []string{
		other + "/events", tenant + "/../" + otherID + "/events", tenant + "/..%2f" + otherID + "/events", tenant + "%2f..%2f" + otherID + "/events",
		tenant + "/%2e%2e/" + otherID + "/events", "//v1/organizations/acme/tenants/" + otherID + "/events", "/v1/./organizations/acme/tenants/" + otherID + "/events",
		tenant + ";/../" + otherID + "/events", tenant + `\..\` + otherID + "/events", "/v1/organizations/acme%2ftenants%2f" + otherID + "/tenants/" + tenantID + "/events",
		"/v1/organizations/acme/tenants/" + strings.ToUpper(otherID) + "/events", "/v1/organizations/acme/tenants/" + tenantID + "," + otherID + "/events",
		"/v1/organizations/acme/tenants/%74" + otherID[1:] + "/events", "http://" + a.Listener.Addr().String() + other + "/events",
	} {
		for _, n := range []*node{a, b} { // at the owner, and through the other replica
			if got := n.do("GET", path, "", with(ownToken)...); got.status < 400 || strings.Contains(got.body, "theirs") {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
	for _, name := range []string{"X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Forwarded-Path", "X-Forwarded-Host", "Forwarded", "Leasehold-Tenant", "Location"} {
		got := a.do("GET", tenant+"/events", "", append(with(ownToken), name, other+"/events")...)
		if strings.Contains(got.body, "theirs") || !strings.Contains(got.body, "own") {
			t.Errorf("%s: %s", name, got)
		}
	}
	a.must(200, "GET", tenant+"/events", "", append(with(ownToken), "X-HTTP-Method-Override", "DELETE")...)
	for method, path := range map[string]string{"GET": "/events?tenant=" + otherID, "POST": "/open?tenant=" + otherID} {
		a.must(400, method, tenant+path, "", with(ownToken)...)
	}
	for path, body := range map[string]string{
		"/events": strings.Replace(event("x"), "{", `{"tenant_id":"`+otherID+`",`, 1),
		"/open":   `{"tenant":"` + otherID + `"}`,
		"/exec":   `{"statements":[{"sql":"ATTACH '../` + otherID + `/ledger.db' AS o"}]}`,
		"/query":  `{"sql":"SELECT readfile('../` + otherID + `/ledger.db')"}`,
	} {
		if got := a.do("POST", tenant+path, body, with(ownToken)...); got.status < 400 {
			t.Errorf("%s %s: %s", path, body, got)
		}
	}
	if after := a.must(200, "GET", other, "", with(opsToken)...).body; normalized(after) != normalized(before) {
		t.Errorf("the other tenant was\n%s and is\n%s", before, after)
	}
	if got := a.must(200, "GET", other+"/events", "", with(opsToken)...); strings.Count(got.body, `"seq"`) != 1 {
		t.Errorf("the other tenant's events: %s", got)
	}
}

// normalized leaves out the end of the lease, which renewals move.
func normalized(record string) string {
	before, rest, _ := strings.Cut(record, `"lease_until":`)
	_, after, _ := strings.Cut(rest, ",")
	return before + after
}

// RE-4, RE-8: a forwarded request has the rights of its client, no more; what the
// client says about being a peer goes no further than the first replica.
func TestForwardKeepsTheClientsRights(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a", asking(t)), f.node("b", asking(t))
	a.must(201, "POST", tenant+"/events", event("one"), with(ownToken)...)
	a.must(200, "POST", other+"/open", "", with(opsToken)...)
	if got := b.must(201, "POST", tenant+"/events", event("two"), with(ownToken)...); got.header.Get(httpapi.HeaderReplica) != "a" {
		t.Errorf("done by %s", got.header.Get(httpapi.HeaderReplica))
	}
	b.refused(403, httpapi.CodeForbidden, "POST", other+"/events", event("x"), with(ownToken)...)
	b.refused(403, httpapi.CodeForbidden, "POST", tenant+"/handoff", "", with(ownToken)...)
	b.must(200, "POST", tenant+"/handoff", "", with(opsToken)...)
}

func httpsOnly() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }

func TestForwarderShowsItsOwnToken(t *testing.T) {
	f := newFleet(t)
	b := f.node("b", asking(t))
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "owner", time.Minute); err != nil {
		t.Fatal(err)
	}
	var seen atomic.Pointer[http.Header]
	owner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(&r.Header) }))
	defer owner.Close()
	f.leases.setAddress("owner", owner.URL)
	b.must(200, "POST", tenant+"/events", event("x"), append(with(ownToken), httpapi.HeaderPeer, "forged")...)
	h := *seen.Load()
	if got := h.Values(httpapi.HeaderPeer); !slices.Equal(got, []string{peerToken}) || h.Get("Authorization") != "Bearer "+ownToken {
		t.Errorf("the owner was shown %v and %v", got, h.Values("Authorization"))
	}
	// Tokens go to no address that asks for them without TLS where TLS is in use.
	c := f.node("c", asking(t), func(o *httpapi.Options, _ *router.Options) { o.PeerTLS = httpsOnly() })
	c.refused(409, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"), with(ownToken)...)
}

// Whoever shows no token cannot make a replica read a body.
func TestRefusedBeforeTheBody(t *testing.T) {
	n := newFleet(t).node("a", asking(t))
	reader, writer := io.Pipe()
	defer writer.Close()
	began := time.Now()
	req, err := http.NewRequest("POST", n.URL+tenant+"/events", reader)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.fleet.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if took := time.Since(began); took >= httpapi.DefaultBodyTimeout {
		t.Errorf("the refusal took %v, as long as the body may", took)
	}
	n.wantUntouched("a request without a token")
}
