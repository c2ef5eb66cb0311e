package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

func TestAppendAndRead(t *testing.T) {
	n := newFleet(t).node("a")
	got := n.must(201, "POST", tenant+"/events", event("one"))
	if want := `{"seq":1,"epoch":1,"duplicate":false}`; strings.TrimSpace(got.body) != want {
		t.Errorf("append: %s", got)
	}
	if got.header.Get(httpapi.HeaderReplica) != "a" || got.header.Get(httpapi.HeaderEpoch) != "1" {
		t.Errorf("headers: %v", got.header)
	}
	if got = n.must(200, "POST", tenant+"/events", event("one")); !strings.Contains(got.body, `"duplicate":true`) {
		t.Errorf("repeated append: %s", got)
	}
	n.refused(409, coord.CodeIdempotencyConflict, "POST", tenant+"/events", strings.Replace(event("one"), `{"n":1}`, `{"n":2}`, 1))
	for i := range 120 {
		n.must(201, "POST", tenant+"/events", event(fmt.Sprint(i)))
	}
	var page struct {
		Events []struct {
			Seq     uint64         `json:"seq"`
			Payload map[string]int `json:"payload"`
		} `json:"events"`
		NextAfter uint64 `json:"next_after"`
	}
	n.must(200, "GET", tenant+"/events?after=1&limit=110", "").into(t, &page)
	if len(page.Events) != 110 || page.Events[0].Seq != 2 || page.NextAfter != 111 || page.Events[0].Payload["n"] != 1 {
		t.Errorf("page: %d events, next %d", len(page.Events), page.NextAfter)
	}
	n.must(200, "GET", tenant+"/events?after=121", "").into(t, &page)
	if len(page.Events) != 0 || page.NextAfter != 121 {
		t.Errorf("beyond the end: %+v", page)
	}
}

// Reads of a tenant that never was create nothing.
func TestReadsCreateNothing(t *testing.T) {
	n := newFleet(t).node("a")
	n.refused(404, coord.CodeTenantUnknown, "GET", tenant, "")
	n.refused(404, coord.CodeTenantUnknown, "GET", tenant+"/events", "")
	n.refused(404, coord.CodeTenantUnknown, "POST", tenant+"/query", `{"sql":"SELECT 1"}`)
	n.refused(404, coord.CodeTenantUnknown, "DELETE", tenant, "")
	for _, op := range []string{"snapshot", "handoff", "abandon"} {
		n.refused(404, coord.CodeTenantUnknown, "POST", tenant+"/"+op, "")
	}
	n.fleet.leases.reads.Store(0)
	n.wantUntouched("reads")
}

func TestQueryAndExec(t *testing.T) {
	n := newFleet(t).node("a")
	got := n.must(200, "POST", tenant+"/exec", `{"statements":[
		{"sql":"CREATE TABLE t(a, b)"},
		{"sql":"INSERT INTO t VALUES (?, ?), (3, 1.5)","args":[{"base64":"AAE="}, null]}]}`)
	if want := `{"results":[{"rows_affected":0,"last_insert_id":0},{"rows_affected":2,"last_insert_id":2}]}`; strings.TrimSpace(got.body) != want {
		t.Errorf("exec: %s", got)
	}
	got = n.must(200, "POST", tenant+"/query", `{"sql":"SELECT a, b, 'x' AS c FROM t WHERE rowid <= ?","args":[2]}`)
	if want := `{"columns":["a","b","c"],"rows":[[{"base64":"AAE="},null,"x"],[3,1.5,"x"]],"truncated":false}`; strings.TrimSpace(got.body) != want {
		t.Errorf("query: %s", got)
	}
	got = n.must(200, "POST", tenant+"/query", `{"sql":"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x FROM n"}`)
	var big struct {
		Rows      [][]int64
		Truncated bool
	}
	if got.into(t, &big); len(big.Rows) != 10_000 || !big.Truncated {
		t.Errorf("an endless query: %d rows, truncated %v", len(big.Rows), big.Truncated)
	}
	got = n.must(200, "POST", tenant+"/query", `{"sql":"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT hex(zeroblob(1000000)) FROM n"}`)
	if got.into(t, &struct{ Truncated *bool }{&big.Truncated}); !big.Truncated || len(got.body) > 20<<20 {
		t.Errorf("large rows: %d bytes", len(got.body))
	}
}

// A transaction of exec happens wholly or not at all, and a query changes nothing.
func TestSQLProblems(t *testing.T) {
	n := newFleet(t).node("a")
	n.must(200, "POST", tenant+"/exec", `{"statements":[{"sql":"CREATE TABLE t(a UNIQUE)"}]}`)
	n.refused(422, httpapi.CodeSQLFailed, "POST", tenant+"/exec", `{"statements":[{"sql":"INSERT INTO t VALUES (1)"},{"sql":"INSERT INTO t VALUES (1)"}]}`)
	n.refused(422, httpapi.CodeSQLFailed, "POST", tenant+"/exec", `{"statements":[{"sql":"SELEC 1"}]}`)
	n.refused(422, httpapi.CodeSQLFailed, "POST", tenant+"/exec", `{"statements":[{"sql":"INSERT INTO t VALUES (?)"}]}`)
	n.refused(422, httpapi.CodeSQLFailed, "POST", tenant+"/query", `{"sql":"INSERT INTO t VALUES (2)"}`)
	n.refused(422, httpapi.CodeSQLFailed, "POST", tenant+"/query", `{"sql":"SELECT * FROM nowhere"}`)
	n.refused(403, coord.CodeSQLRefused, "POST", tenant+"/query", `{"sql":"ATTACH 'x' AS y"}`)
	n.refused(403, coord.CodeSQLRefused, "POST", tenant+"/exec", `{"statements":[{"sql":"PRAGMA journal_mode = DELETE"}]}`)
	n.refused(403, coord.CodeSQLRefused, "POST", tenant+"/exec", `{"statements":[{"sql":"INSERT INTO t VALUES (3)"},{"sql":"COMMIT"}]}`)
	got := n.must(200, "POST", tenant+"/query", `{"sql":"SELECT count(*) FROM t"}`)
	if !strings.Contains(got.body, `"rows":[[0]]`) {
		t.Errorf("something was written: %s", got)
	}
	// The tenant works on afterwards.
	n.must(200, "POST", tenant+"/exec", `{"statements":[{"sql":"INSERT INTO t VALUES (4)"}]}`)
}

// A query that outlasts the client's patience is given up, and the tenant works on.
func TestTimeout(t *testing.T) {
	n := newFleet(t).node("a")
	n.must(200, "POST", tenant+"/open", "")
	endless := `{"sql":"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n"}`
	n.refused(503, httpapi.CodeTimeout, "POST", tenant+"/query", endless, httpapi.HeaderTimeout, "200")
	n.must(201, "POST", tenant+"/events", event("after"))
}

func TestTenantLifecycle(t *testing.T) {
	f := newFleet(t)
	a, b := f.node("a"), f.node("b")
	got := a.must(200, "POST", tenant+"/open", "{}")
	if want := fmt.Sprintf(`{"organization":"acme","tenant":%q,"epoch":1,"revision":1,"owner":"a","restored_from":null}`, tenantID); strings.TrimSpace(got.body) != want {
		t.Errorf("open: %s", got)
	}
	a.must(201, "POST", tenant+"/events", event("one"))
	var manifest struct{ Key, Owner string }
	if a.must(200, "POST", tenant+"/snapshot", "").into(t, &manifest); manifest.Key != "acme/"+tenantID || manifest.Owner != "a" {
		t.Errorf("snapshot: %+v", manifest)
	}
	var described struct {
		Held  bool
		Owner string
		Here  *struct{ State string }
	}
	if a.must(200, "GET", tenant, "").into(t, &described); !described.Held || described.Owner != "a" || described.Here == nil || described.Here.State != "serving" {
		t.Errorf("described by its owner: %+v", described)
	}
	described.Here = nil
	if b.must(200, "GET", tenant, "").into(t, &described); described.Owner != "a" || described.Here != nil {
		t.Errorf("described by another: %+v", described)
	}
	if got := a.must(200, "GET", "/v1/tenants", ""); !strings.Contains(got.body, tenantID) || !strings.Contains(got.body, `"state":"serving","idle":false`) {
		t.Errorf("tenants: %s", got)
	}
	if got := b.must(200, "POST", tenant+"/handoff", "{}"); !strings.Contains(got.body, `"flushed":true`) || got.header.Get(httpapi.HeaderReplica) != "a" {
		t.Errorf("handoff, asked of b: %s by %s", got, got.header.Get(httpapi.HeaderReplica))
	}
	for _, op := range []string{"snapshot", "handoff", "abandon"} {
		b.refused(409, httpapi.CodeTenantNotOpen, "POST", tenant+"/"+op, "")
	}
	if got := b.must(200, "POST", tenant+"/open", ""); !strings.Contains(got.body, `"epoch":2`) || !strings.Contains(got.body, `"restored_from":{`) {
		t.Errorf("open after the handoff: %s", got)
	}
	// Nobody has used the ledger since.
	if got := b.must(200, "GET", "/v1/tenants", ""); !strings.Contains(got.body, `"state":"serving","idle":true`) {
		t.Errorf("an idle tenant: %s", got)
	}
	if got := b.must(200, "GET", "/metrics", ""); !strings.Contains(got.body, "\nleasehold_tenants_idle 1\n") {
		t.Error("no metric counts the idle tenant")
	}
	b.must(201, "POST", tenant+"/events", event("two"))
	if got := b.must(200, "POST", tenant+"/abandon", ""); !strings.Contains(got.body, `"flushed":false`) {
		t.Errorf("abandon: %s", got)
	}
	if got := a.must(200, "GET", tenant+"/events", ""); !strings.Contains(got.body, `"one"`) || strings.Contains(got.body, `"two"`) {
		t.Errorf("after the abandon: %s", got)
	}
	if got := a.must(200, "DELETE", tenant, ""); !strings.Contains(got.body, `"floor":3`) {
		t.Errorf("forget: %s", got)
	}
	b.refused(404, coord.CodeTenantUnknown, "GET", tenant+"/events", "")
}

func TestReplicaLeasesAndMetrics(t *testing.T) {
	f := newFleet(t)
	a := f.node("a", func(_ *httpapi.Options, o *router.Options) { o.MaxTenants = 3 })
	path := func(org string, i int) string { return fmt.Sprintf("/v1/organizations/%s/tenants/t-%032x", org, i) }
	for i, org := range []string{"acme", "beta", "acme"} {
		a.must(200, "POST", path(org, i)+"/open", "")
	}
	a.refused(503, coord.CodeAtCapacity, "POST", path("acme", 9)+"/open", "")

	var listed struct {
		Leases []struct {
			Organization, Owner string
			Held                bool
		}
		Next string
	}
	a.must(200, "GET", "/v1/leases?limit=2", "").into(t, &listed)
	if len(listed.Leases) != 2 || listed.Next == "" || !listed.Leases[0].Held || listed.Leases[0].Owner != "a" {
		t.Fatalf("first page: %+v", listed)
	}
	next := listed.Next
	listed.Next = ""
	a.must(200, "GET", "/v1/leases?limit=2&after="+next, "").into(t, &listed)
	if len(listed.Leases) != 1 || listed.Next != "" || listed.Leases[0].Organization != "beta" {
		t.Errorf("second page: %+v", listed)
	}
	a.must(200, "GET", "/v1/leases?organization=acme", "").into(t, &listed)
	if len(listed.Leases) != 2 {
		t.Errorf("one organization: %+v", listed)
	}
	a.refused(400, httpapi.CodeRequestInvalid, "GET", "/v1/leases?limit=0", "")
	if _, err := f.leases.Acquire(t.Context(), mustKey(t), "gone", time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"stuck":"its owner is gone"`, `"granted_at":`} {
		if got := a.must(200, "GET", "/v1/leases", ""); strings.Count(got.body, part) == 0 {
			t.Errorf("%s is not in %s", part, got.body)
		}
	}
	if got := a.must(200, "GET", "/v1/replica", ""); !strings.Contains(got.body, `"replica":"a"`) || !strings.Contains(got.body, `"tenants":3`) {
		t.Errorf("replica: %s", got)
	}
	a.must(200, "POST", path("beta", 1)+"/handoff", "")
	want := []string{
		`leasehold_tenants{state="serving"} 2`, "leasehold_epochs_granted_total 3", "leasehold_handoffs_total 1",
		`leasehold_http_requests_total{code="503",route="POST /v1/organizations/{organization}/tenants/{tenant}/open"} 1`,
		`leasehold_requests_in_flight 1`, "leasehold_wal_bytes ", "leasehold_wal_largest_bytes ", "leasehold_ledger_bytes ", `leasehold_build_info{`, `leasehold_lease_renewals_total{result="failed"} 0`, "leasehold_snapshots_total",
	}
	// Events are counted after the fact, on their own goroutine.
	deadline := time.Now().Add(time.Minute)
	for {
		missing := ""
		body := a.must(200, "GET", "/metrics", "").body
		for _, line := range want {
			if !strings.Contains(body, line) {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s in\n%s", missing, body)
		}
	}
}

// Trap 66: readiness turns before anything is refused, and nothing else does.
func TestReadiness(t *testing.T) {
	a := newFleet(t).node("a")
	a.must(200, "GET", "/readyz", "")
	a.api.BeginDrain()
	if got := a.must(503, "GET", "/readyz", ""); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a.must(200, "GET", "/livez", "")
	a.must(201, "POST", tenant+"/events", event("late"))
	if err := a.router.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.must(200, "GET", "/livez", "")
	a.must(503, "GET", "/readyz", "")
	a.refused(503, coord.CodeRouterClosed, "POST", tenant+"/events", event("later"))
	a.refused(503, coord.CodeRouterClosed, "GET", tenant+"/events", "")
}
