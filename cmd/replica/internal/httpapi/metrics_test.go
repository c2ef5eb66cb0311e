package httpapi_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/router"
)

// aBusyReplica returns the metrics of a replica that has done a bit of everything.
func aBusyReplica(t *testing.T) string {
	t.Helper()
	f := newFleet(t)
	a, b := f.node("a", func(_ *httpapi.Options, o *router.Options) { o.LeaseTTL = 6 * time.Second }), f.node("b")
	renewed := regexp.MustCompile(`leasehold_lease_renewal_seconds_count [1-9]`)
	a.must(201, "POST", tenant+"/events", event("one"))
	b.must(201, "POST", tenant+"/events", event("two"))
	a.must(200, "POST", tenant+"/snapshot", "")
	a.must(200, "POST", other+"/open", "")
	a.must(200, "POST", other+"/handoff", "")
	a.must(201, "POST", tenant+"/events", event("three"))
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		body := a.must(200, "GET", "/metrics", "").body
		if renewed.MatchString(body) && strings.Contains(body, "leasehold_handoffs_total 1") {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("not renewed and handed off:\n%s", body)
		}
	}
}

// Issue 6, 7: what an operator has to see is there, with the figures that belong.
func TestMetricsThatMatter(t *testing.T) {
	body := aBusyReplica(t)
	for _, want := range []string{
		// Two appends and an open acknowledged here for clients, one for another replica.
		`leasehold_ack_fence_remaining_seconds_count 4`, `leasehold_ack_fence_remaining_seconds_bucket{le="0.05"} 0`, `leasehold_ack_fence_remaining_seconds_bucket{le="5"} 4`,
		`leasehold_open_seconds_count 2`, `leasehold_snapshot_seconds_count 1`, `leasehold_handoff_pause_seconds_count 1`, `leasehold_handoff_pause_seconds_bucket{le="30"} 1`,
		`leasehold_uncopied_tenants 1`, `leasehold_tenants{state="serving"} 1`, `leasehold_epochs_granted_total 2`,
		`leasehold_copy_proof_age_seconds`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	for _, name := range []string{"fence_remaining", "uncopied"} {
		if !regexp.MustCompile(`(?m)^leasehold_` + name + `_seconds [0-9.]*[1-9]`).MatchString(body) {
			t.Errorf("no time of %s in\n%s", name, body)
		}
	}
}

// Issue 6, 7: names and helps are as Prometheus wants them, and no label has more
// values than the code has: none names a tenant, an owner or a path of a client.
func TestMetricsAreWellMade(t *testing.T) {
	body := aBusyReplica(t)
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	labels := []string{"le", "code", "route", "outcome", "result", "state", "version", "go_version"}
	for _, label := range regexp.MustCompile(`(?m)^leasehold_\w+\{([^}]*)\}`).FindAllStringSubmatch(body, -1) {
		for _, pair := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(label[1], -1) {
			if !slices.Contains(labels, pair[1]) || strings.Contains(pair[2], tenantID) {
				t.Errorf("the label %s=%q", pair[1], pair[2])
			}
		}
	}
}
