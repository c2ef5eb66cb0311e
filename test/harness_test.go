// Package test holds what needs several processes: the built replica binary, a
// real etcd and real signals.
package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// replicaBinary is the binary under test, built once. It has the race detector if
// the tests do.
var replicaBinary string

var (
	clusterTenants = flag.Int("cluster-tenants", 200, "tenants held while the leader of an etcd cluster moves")
	clusterTime    = flag.Duration("cluster-time", 10*time.Second, "how long it moves")
)

func TestMain(m *testing.M) {
	if member := os.Getenv(memberVariable); member != "" {
		fmt.Fprintln(os.Stderr, runMember(member))
		os.Exit(1)
	}
	flag.Parse()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "leasehold-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	replicaBinary = filepath.Join(dir, "replica")
	args := []string{"build", "-o", replicaBinary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../cmd/replica")...)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the replica: %w\n%s", err, out)
	}
	code := m.Run()
	if code != 0 {
		return code, nil
	}
	if err := goleak.Find(); err != nil {
		return 1, err
	}
	return 0, nil
}

// patience bounds waits for things that are sure to happen on a healthy machine,
// however slow; it decides about no guarantee.
const patience = 2 * time.Minute

// longLease is for tests in which no lease may run out, on a busy machine neither.
var longLease = []string{"--lease-ttl", "2m", "--lease-margin", "5s"}

// A fleet is one etcd, one directory of copies, and the replicas on them.
type fleet struct {
	t      *testing.T
	etcd   *embedetcd.Server
	copies string
	client *http.Client
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	return newFleetOn(t, embedetcd.StartT(t))
}

func newFleetOn(t *testing.T, etcd *embedetcd.Server) *fleet {
	t.Helper()
	f := &fleet{t: t, copies: t.TempDir(), etcd: etcd}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
	return f
}

// A replica is a running process of the replica binary.
type replica struct {
	t      *testing.T
	client *http.Client
	cmd    *exec.Cmd
	url    string
	dir    string

	exited chan struct{} // closed when the process has ended
	out    *output
}

// output keeps what a process printed and lets a test wait for a line.
type output struct {
	mu struct {
		sync.Mutex
		text    bytes.Buffer
		changed chan struct{}
	}
}

func (o *output) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.text.WriteString(line + "\n")
	if o.mu.changed != nil {
		close(o.mu.changed)
		o.mu.changed = nil
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.text.String()
}

func (o *output) next() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.changed == nil {
		o.mu.changed = make(chan struct{})
	}
	return o.mu.changed
}

// start starts a replica of the fleet and returns when it serves.
func (f *fleet) start(name string, args ...string) *replica {
	f.t.Helper()
	return startReplica(f.t, f.client, append([]string{
		"--name", name, "--etcd", strings.Join(f.etcd.Endpoints(), ","), "--copies", f.copies,
	}, args...)...)
}

func startReplica(t *testing.T, client *http.Client, args ...string) *replica {
	t.Helper()
	r := &replica{t: t, client: client, dir: t.TempDir(), exited: make(chan struct{}), out: &output{}}
	r.cmd = exec.Command(replicaBinary, append([]string{"--listen", "127.0.0.1:0", "--state-dir", r.dir}, args...)...)
	reader, writer := io.Pipe()
	r.cmd.Stdout, r.cmd.Stderr = writer, writer
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			r.out.add(lines.Text())
		}
	}()
	go func() {
		r.cmd.Wait()
		writer.Close()
		<-printed
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Signal(syscall.SIGCONT)
		r.cmd.Process.Kill()
		<-r.exited
		if strings.Contains(r.out.String(), "DATA RACE") || t.Failed() {
			t.Errorf("replica %v printed:\n%s", args, r.out)
		}
	})
	scheme := "http"
	if slices.Contains(args, "--tls-cert") {
		scheme = "https"
	}
	r.url = r.await(scheme + "://127.0.0.1:")
	return r
}

// await returns the URL that starts with prefix once the replica has printed it.
func (r *replica) await(prefix string) string {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		changed := r.out.next()
		if _, rest, ok := strings.Cut(r.out.String(), prefix); ok {
			if end := strings.IndexAny(rest, "/\" \n"); end > 0 {
				return prefix + rest[:end]
			}
		}
		select {
		case <-changed:
		case <-r.exited:
			r.t.Fatalf("the replica ended before it served:\n%s", r.out)
		case <-deadline.C:
			r.t.Fatalf("the replica did not serve:\n%s", r.out)
		}
	}
}

// eventuallySays returns when the replica has printed text.
func (r *replica) eventuallySays(text string) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		changed := r.out.next()
		if strings.Contains(r.out.String(), text) {
			return
		}
		select {
		case <-changed:
		case <-r.exited:
			r.t.Fatalf("the replica ended before it said %q", text)
		case <-deadline.C:
			r.t.Fatalf("the replica did not say %q", text)
		}
	}
}

func (r *replica) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// wait returns the exit code.
func (r *replica) wait(limit time.Duration) int {
	r.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.exited:
		return r.cmd.ProcessState.ExitCode()
	case <-timer.C:
		r.t.Fatalf("the replica did not exit within %v", limit)
		return -1
	}
}

// A reply is an answer of the HTTP API.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (a reply) String() string { return fmt.Sprintf("%d %s", a.status, bytes.TrimSpace(a.body)) }

// code is the code of a problem, "" for a success.
func (a reply) code() string {
	var problem struct{ Code string }
	if a.status < 400 || json.Unmarshal(a.body, &problem) != nil {
		return ""
	}
	return problem.Code
}

func (a reply) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%v in the reply %s", err, a)
	}
}

// do sends one request. An error means that no whole answer came.
func (r *replica) do(ctx context.Context, method, path string, body any, header ...string) (reply, error) {
	var reader io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, reader)
	if err != nil {
		return reply{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: text}, err
}

// must sends one request and fails the test unless the status is as wanted.
func (r *replica) must(status int, method, path string, body any, header ...string) reply {
	r.t.Helper()
	got, err := r.do(r.t.Context(), method, path, body, header...)
	if err != nil || got.status != status {
		r.t.Fatalf("%s %s: got %s, %v, want status %d", method, path, got, err, status)
	}
	return got
}

// eventually repeats a request, pausing as the server asks (at most briefly), until
// done accepts the answer.
func (r *replica) eventually(limit time.Duration, method, path string, body any, done func(reply) bool) reply {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	var last reply
	for {
		got, err := r.do(ctx, method, path, body)
		if err == nil && done(got) {
			return got
		}
		if err == nil {
			last = got
		}
		if !pause(ctx, 20*time.Millisecond) {
			r.t.Fatalf("%s %s: not as wanted within %v; the last answer was %s, %v", method, path, limit, last, err)
		}
	}
}

// pause returns false if ctx ends first. It spaces out retries and polls, as a
// client does; no test decides anything by it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func ok(a reply) bool { return a.status >= 200 && a.status < 300 }
