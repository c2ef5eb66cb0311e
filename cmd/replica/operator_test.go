package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

func openStore(t *testing.T, endpoints []string) *etcdlease.Store {
	t.Helper()
	s, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func testKey(t *testing.T, organization string) coord.Key {
	t.Helper()
	k, err := coord.NewKey(organization, "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLeasesCommand(t *testing.T) {
	etcd := embedetcd.StartT(t)
	s := openStore(t, etcd.Endpoints())
	if err := s.Register(t.Context(), etcdlease.Replica{ID: "alive"}); err != nil {
		t.Fatal(err)
	}
	for organization, owner := range map[string]string{"acme": "alive", "beta": "dead", "gone": "alive"} {
		g, err := s.Acquire(t.Context(), testKey(t, organization), owner, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if organization == "gone" {
			if err := s.Release(t.Context(), g.Tenure); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := "--etcd=" + etcd.Endpoints()[0]
	out, err := run(t, "leases", at)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "acme/t-") || !strings.Contains(lines[1], "≤") ||
		!strings.Contains(lines[2], etcdlease.StuckUnregistered) || !strings.Contains(lines[3], "over") {
		t.Errorf("printed\n%s", out)
	}
	out, err = run(t, "leases", at, "--output", "json", "--held", "--organization", "beta")
	var got []leaseLine
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got) != 1 || got[0].Owner != "dead" || !got[0].Held || got[0].Stuck == "" || got[0].GrantedAt == 0 {
		t.Errorf("json: %s, %v", out, err)
	}
	for what, args := range map[string][]string{
		"output": {"leases", at, "--output", "xml"}, "organization": {"leases", at, "--organization", "A"}, "argument": {"leases", at, "x"},
	} {
		if _, err := run(t, args...); err == nil {
			t.Errorf("bad %s: accepted", what)
		}
	}
	help, err := run(t, "leases", "--help")
	if err != nil || !strings.Contains(help, "--etcd-prefix") || strings.Contains(help, "--snapshot-every") {
		t.Errorf("help: %s, %v", help, err)
	}
}

func TestEndLeaseCommandRefuses(t *testing.T) {
	etcd := embedetcd.StartT(t)
	s, key, at := openStore(t, etcd.Endpoints()), testKey(t, "acme"), "--etcd="+etcd.Endpoints()[0]
	if _, err := s.Acquire(t.Context(), key, "alive", time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "end-lease", at, key.String()); coord.CodeOf(err) != coord.CodeLeaseHeld {
		t.Errorf("a lease that ends by itself: %v", err)
	}
	for _, args := range [][]string{{"end-lease", at}, {"end-lease", at, "x"}, {"end-lease", at, key.String(), "--output", "xml"}} {
		if _, err := run(t, args...); err == nil {
			t.Errorf("%v: accepted", args)
		}
	}
}
