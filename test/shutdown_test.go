package test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// RE-3, trap 69: after SIGTERM every tenant is another replica's within two seconds
// of the exit, although the leases would have lasted ten minutes. A slow machine gets
// more than two seconds, and what it took is logged.
func TestTermHandsEverythingOff(t *testing.T) {
	f := newFleet(t)
	args := []string{"--lease-ttl", "10m", "--lease-margin", "5s", "--snapshot-every", "0"}
	a, b := f.start("a", args...), f.start("b", args...)
	keys := numberedKeys(t, 50)
	forEach(t, keys, func(key coord.Key) error {
		_, err := appendEvent(t.Context(), key, note("kept"), a)
		return err
	})

	// A connection on which nothing is asked keeps nobody waiting.
	idle, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	a.signal(syscall.SIGTERM)
	a.eventuallySays("draining")
	draining := time.Now()
	if code := a.wait(patience); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	exited := time.Now()
	t.Logf("exited %v after the drain began", exited.Sub(draining).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	forEach(t, keys, func(key coord.Key) error {
		got, err := appendEvent(ctx, key, note("next"), b)
		if err == nil && (got.Epoch != 2 || got.Seq != 2) {
			err = fmt.Errorf("epoch %d, seq %d, want epoch 2, seq 2", got.Epoch, got.Seq)
		}
		return err
	})
	t.Logf("the last of %d tenants was served %v after the exit", len(keys), time.Since(exited).Round(time.Millisecond))
}

// Trap 66: readiness turns before the first refusal, liveness stays to the end.
// Trap 68: a long poll does not hold the shutdown.
func TestReadinessTurnsFirst(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--snapshot-every", "0", "--drain-timeout", "20s")
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("first"))
	a.must(200, "GET", "/readyz", nil)
	w := watch(t.Context(), a)
	select {
	case <-w.connected:
	case <-w.done:
		t.Fatal("no event stream")
	}

	// A request whose body is still on its way keeps no drain waiting.
	slow := halfARequest(t, a, key)
	defer slow.Close()

	answers := make(chan string)
	go func() {
		defer close(answers)
		for i := 0; ; i++ {
			// In this order: what was refused is refused by one that had turned before.
			work, err1 := a.do(t.Context(), "POST", tenantPath(key)+"/events", note(fmt.Sprintf("n-%d", i)))
			ready, err2 := a.do(t.Context(), "GET", "/readyz", nil)
			live, err3 := a.do(t.Context(), "GET", "/livez", nil)
			if err1 != nil || err2 != nil || err3 != nil {
				return // the server is gone
			}
			answers <- fmt.Sprintf("ready=%d live=%d work=%d", ready.status, live.status, work.status)
		}
	}()
	if got := <-answers; got != "ready=200 live=200 work=201" {
		t.Fatalf("before the signal: %s", got)
	}
	a.signal(syscall.SIGTERM)
	for got := range answers {
		if strings.Contains(got, "ready=200") && !strings.Contains(got, "work=201") {
			t.Errorf("work was refused while ready: %s", got)
		}
		if !strings.Contains(got, "live=200") {
			t.Errorf("liveness turned: %s", got)
		}
	}
	if code := a.wait(patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	<-w.done
}

func halfARequest(t *testing.T, r *replica, key coord.Key) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", tenantPath(key))
	return conn
}

// Trap 68: a second signal ends the process at once and claims nothing; so does a
// signal while it starts.
func TestSecondSignalExitsAtOnce(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--snapshot-every", "0", "--drain-timeout", "10m")
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("first"))

	// A statement that runs for long keeps the drain waiting.
	busy := make(chan error, 1)
	go func() {
		_, err := a.do(t.Context(), "POST", tenantPath(key)+"/exec", map[string]any{"statements": []map[string]any{
			{"sql": "CREATE TABLE big AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x < 100000000000) SELECT count(*) AS c FROM n"},
		}})
		busy <- err
	}()
	a.eventually(patience, "GET", "/metrics", nil, func(got reply) bool {
		return strings.Contains(string(got.body), "leasehold_requests_in_flight 2")
	})
	a.signal(syscall.SIGTERM)
	a.eventually(patience, "GET", "/readyz", nil, func(got reply) bool { return got.status == 503 })
	a.signal(syscall.SIGTERM)
	if code := a.wait(patience); code != 130 {
		t.Errorf("a shutdown that was cut short exited with %d, want 130", code)
	}
	if !strings.Contains(a.out.String(), "a second signal: exiting at once") {
		t.Error("the log does not say why it was cut short")
	}
	if err := <-busy; err == nil {
		t.Error("the interrupted request was answered")
	}
}

// RE-2: a restarted process is another holder. A terminal that closes is a shutdown
// like any other.
func TestRestartIsAnotherReplica(t *testing.T) {
	f := newFleet(t)
	a := f.start("a")
	first := a.id()
	a.signal(syscall.SIGHUP)
	if code := a.wait(patience); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	if second := f.start("a").id(); second == first || !strings.HasPrefix(second, "a-") {
		t.Errorf("incarnations %s and %s", first, second)
	}
}

// The event stream ends with the replica, whatever the reader does.
func TestEventStreamIsServerSentEvents(t *testing.T) {
	f := newFleet(t)
	a := f.start("a")
	req, err := http.NewRequestWithContext(t.Context(), "GET", a.url+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("Content-Type %q", got)
	}
	key := numberedKeys(t, 1)[0]
	a.must(200, "POST", tenantPath(key)+"/open", nil)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"acquired"`) {
			return
		}
	}
	t.Errorf("the stream ended without the event: %v", lines.Err())
}

// Traps 68, 71: work that does not end is given the drain's time and no more. The exit
// code says that not all was handed off, and the tenant is named.
func TestTermWithWorkThatDoesNotEnd(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--snapshot-every", "0", "--drain-timeout", "1s")
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("first"))
	busy := make(chan reply, 1)
	go func() {
		got, _ := a.do(t.Context(), "POST", tenantPath(key)+"/exec", map[string]any{"statements": []map[string]any{
			{"sql": "CREATE TABLE big AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x < 100000000000) SELECT count(*) AS c FROM n"},
		}})
		busy <- got
	}()
	a.eventually(patience, "GET", "/metrics", nil, func(got reply) bool {
		return strings.Contains(string(got.body), "leasehold_requests_in_flight 2")
	})
	a.signal(syscall.SIGTERM)
	if code := a.wait(patience); code != 1 { // the work takes hours
		t.Errorf("exit code %d, want 1", code)
	}
	if got := <-busy; ok(got) {
		t.Errorf("the work was acknowledged: %s", got)
	}
	if out := a.out.String(); !strings.Contains(out, key.String()) || !strings.Contains(out, "DRAIN_TIMEOUT") {
		t.Errorf("the tenant is not named:\n%s", out)
	}
}
