package test

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

func mustKey(t *testing.T, s string) coord.Key {
	t.Helper()
	key, err := coord.ParseKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// RE-1: started with nothing configured but free ports, a replica serves within five
// seconds, and the lines that it prints work as printed. With the race detector it may
// take longer.
func TestPrintedLinesWork(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	began := time.Now()
	r := startReplica(t, client, "--embedded-etcd-client", "127.0.0.1:0", "--embedded-etcd-peer", "127.0.0.1:0")
	if got, err := r.do(t.Context(), "GET", "/readyz", nil); err != nil || got.status != 200 {
		t.Fatalf("readyz: %s, %v", got, err)
	}
	limit := 5 * time.Second
	if raceEnabled {
		limit = patience / 2
	}
	if took := time.Since(began); took > limit {
		t.Errorf("served after %v, want within %v", took, limit)
	}
	tried := 0
	for line := range strings.Lines(r.out.String()) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		tried++
		// --fail-with-body turns a refusal into an exit status.
		out, err := exec.Command("sh", "-c", strings.Replace(line, "curl ", "curl --fail-with-body ", 1)).CombinedOutput()
		if err != nil {
			t.Errorf("%s\n%v\n%s", line, err, out)
		}
	}
	if tried < 3 {
		t.Errorf("%d curl lines printed, want at least 3:\n%s", tried, r.out)
	}
}

// Replicas on one etcd that keep different copies would each go on from a state of
// their own; the second one does not start.
func TestOtherCopiesAreRefused(t *testing.T) {
	f := newFleet(t)
	f.start("a")
	out, err := exec.Command(replicaBinary, "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(),
		"--etcd", strings.Join(f.etcd.Endpoints(), ","), "--copies", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "OPTIONS_INVALID") || !strings.Contains(string(out), "--copies") {
		t.Errorf("other copies: %v\n%s", err, out)
	}
	out, err = exec.Command(replicaBinary, "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(),
		"--etcd", strings.Join(f.etcd.Endpoints(), ",")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "copies is not set") {
		t.Errorf("no copies: %v\n%s", err, out)
	}
}

// RE-8: without TLS and authentication only loopback is served, and the refusal says so.
func TestRefusesToListenBeyondLoopback(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "192.0.2.1:8420"} {
		out, err := exec.Command(replicaBinary, "--listen", listen, "--state-dir", t.TempDir()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "loopback") {
			t.Errorf("--listen %s: %v\n%s", listen, err, out)
		}
	}
}
