package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// awaitReady waits until /readyz has the status; liveness must not turn meanwhile.
func (r *replica) awaitReady(status int, why string) {
	r.t.Helper()
	r.eventually(patience, "GET", "/readyz", nil, func(got reply) bool {
		r.must(200, "GET", "/livez", nil)
		return got.status == status && strings.Contains(string(got.body), why)
	})
}

// RE-5: without its etcd, or without its disk, a replica says that it is not ready,
// and never that it is dead.
func TestReadinessWithoutEtcdOrDisk(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--lease-ttl", "1s")
	a.awaitReady(200, "ready")
	gone := a.dir + "-gone"
	if err := os.Rename(a.dir, gone); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(503, "state directory")
	if err := os.Rename(gone, a.dir); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(200, "ready")
	if err := f.etcd.Close(); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(503, "etcd")
}

// Trap 68: SIGTERM while the replica starts, on an etcd that takes connections and
// answers nothing. It ends soon, and not with 0.
func TestTermWhileStarting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}()
	cmd := exec.Command(replicaBinary, "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(), "--copies", t.TempDir(), "--etcd", l.Addr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-connected:
	case <-time.After(patience):
		t.Error("the replica did not try its etcd")
	}
	signalled := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a start that was interrupted exited with 0")
	}
	if took := time.Since(signalled); took > patience/2 {
		t.Errorf("it took %v to stop", took)
	}
}

// Trap 68: SIGTERM while a large tenant is being restored. The opening is undone, and
// another replica opens the tenant at once, with everything.
func TestTermWhileRestoring(t *testing.T) {
	f := newFleet(t)
	args := append([]string{"--snapshot-every", "0"}, longLease...)
	a := f.start("a", args...)
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("kept"))
	a.must(200, "POST", tenantPath(key)+"/exec", map[string]any{"statements": []map[string]any{
		{"sql": "CREATE TABLE big(x)"},
		{"sql": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 60) INSERT INTO big SELECT zeroblob(4000000) FROM n"},
	}})
	a.must(200, "POST", tenantPath(key)+"/handoff", nil)
	opening := make(chan string, 1)
	go func() {
		got, err := a.do(t.Context(), "POST", tenantPath(key)+"/open", nil)
		opening <- fmt.Sprint(got.status, " ", got.code(), " ", err)
	}()
	a.eventually(patience, "GET", tenantPath(key), nil, func(got reply) bool {
		return strings.Contains(string(got.body), `"held":true`)
	})
	a.signal(syscall.SIGTERM)
	if code := a.wait(patience); code != 0 {
		t.Errorf("exit code %d, want 0: nothing that was acknowledged is missing from the copies", code)
	}
	if got := <-opening; !strings.HasPrefix(got, "503 ROUTER_CLOSED") {
		t.Logf("the open ended with %s: the signal did not meet it this time", got)
	}
	b := f.start("b", args...)
	exited := time.Now()
	if got := b.events(key); len(got) != 1 || got[0].IdemKey != "kept" {
		t.Errorf("events %v", got)
	}
	if took := time.Since(exited); took > patience/2 {
		t.Errorf("the next owner waited %v: the lease was not given back", took)
	}
}

// Trap 68, RE-7: a client that asks for a large answer and never reads it holds
// neither a drain nor the end of the process.
func TestTermWithAClientThatDoesNotRead(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--snapshot-every", "0", "--drain-timeout", "10m")
	key := numberedKeys(t, 1)[0]
	a.must(200, "POST", tenantPath(key)+"/exec", map[string]any{"statements": []map[string]any{
		{"sql": "CREATE TABLE big(x)"},
		{"sql": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 60) INSERT INTO big SELECT hex(zeroblob(50000)) FROM n"},
	}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	query := `{"sql":"SELECT x FROM big"}`
	fmt.Fprintf(conn, "POST %s/query HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", tenantPath(key), len(query), query)
	line, err := bufio.NewReaderSize(io.LimitReader(conn, 64), 16).ReadString('\n')
	if err != nil || !strings.Contains(line, fmt.Sprint(http.StatusOK)) {
		t.Fatalf("%q, %v", line, err)
	}
	a.signal(syscall.SIGTERM)
	if code := a.wait(patience); code != 0 { // or the reader who does not read holds the process
		t.Errorf("exit code %d, want 0", code)
	}
}
