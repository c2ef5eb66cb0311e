package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/memstore"
	"github.com/leaseholddb/leasehold/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenantID = "t-860cead4b9aab8577b5f03fdeff1ead1"
	tenant   = "/v1/organizations/acme/tenants/" + tenantID
)

// leases is a lease store that knows where owners can be reached, can list and
// counts what it is asked.
type leases struct {
	*memlease.Store
	reads, acquires atomic.Int32

	mu struct {
		sync.Mutex
		addresses map[string]string // by owner
		afterRead func()            // once
		keys      []coord.Key
	}
}

func (l *leases) Read(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	l.reads.Add(1)
	record, known, err := l.read(ctx, key)
	l.mu.Lock()
	then := l.mu.afterRead
	l.mu.afterRead = nil
	l.mu.Unlock()
	if then != nil {
		then()
	}
	return record, known, err
}

// afterRead calls f after the next read, before its answer is known.
func (l *leases) afterRead(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.afterRead = f
}

func (l *leases) read(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	record, known, err := l.Store.Read(ctx, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	record.Address = l.mu.addresses[record.Owner]
	return record, known, err
}

func (l *leases) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	l.acquires.Add(1)
	grant, err := l.Store.Acquire(ctx, key, owner, ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := (*coord.LeaseHeldError)(nil); errors.As(err, &held) {
		held.Record.Address = l.mu.addresses[held.Record.Owner] // as etcd's refusal has it
	}
	if err == nil {
		if !slices.Contains(l.mu.keys, key) {
			l.mu.keys = append(l.mu.keys, key)
		}
	}
	return grant, err
}

func (l *leases) List(ctx context.Context, organization, after string, limit int) ([]coord.Record, error) {
	l.mu.Lock()
	keys := slices.Clone(l.mu.keys)
	l.mu.Unlock()
	slices.SortFunc(keys, func(a, b coord.Key) int { return strings.Compare(a.String(), b.String()) })
	var records []coord.Record
	for _, key := range keys {
		if key.String() <= after || organization != "" && key.Organization() != organization || len(records) == limit {
			continue
		}
		record, _, err := l.read(ctx, key)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// Inspect finds the leases of an owner called "gone" stuck.
func (l *leases) Inspect(_ context.Context, records []coord.Record) (map[coord.Key]string, error) {
	stuck := make(map[coord.Key]string)
	for _, r := range records {
		if r.Owner == "gone" {
			stuck[r.Key] = "its owner is gone"
		}
	}
	return stuck, nil
}

// peer is the registry: every owner that has an address.
func (l *leases) peer(_ context.Context, id string) (string, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	address, known := l.mu.addresses[id]
	return address, known, nil
}

func (l *leases) forgetAddress(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.addresses, owner)
}

func (l *leases) setAddress(owner, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.addresses[owner] = address
}

// A fleet is what replicas share.
type fleet struct {
	t      *testing.T
	leases *leases
	copies copystore.Store
	client *http.Client
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, leases: &leases{Store: memlease.New(coord.SystemClock())}, copies: memstore.New()}
	f.leases.mu.addresses = make(map[string]string)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport, Timeout: time.Minute}
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return f
}

// A node is a replica in this process.
type node struct {
	*httptest.Server
	fleet  *fleet
	api    *httpapi.Server
	router *router.Router
	root   string
}

func (f *fleet) node(id string, change ...func(*httpapi.Options, *router.Options)) *node {
	f.t.Helper()
	n := &node{fleet: f, root: f.t.TempDir()}
	n.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.api.ServeHTTP(w, r) }))
	address := "http://" + n.Listener.Addr().String()
	f.leases.setAddress(id, address)
	monitor := httpapi.NewMonitor("test")
	routing := router.Options{ReplicaID: id, StateRoot: n.root, Leases: f.leases, Copies: f.copies, Observer: monitor.Observe, DrainTimeout: 10 * time.Second}
	serving := httpapi.Options{Leases: f.leases, Peers: f.leases.peer, Monitor: monitor, Address: address, Version: "test"}
	for _, c := range change {
		c(&serving, &routing)
	}
	var err error
	if n.router, err = router.New(routing); err != nil {
		f.t.Fatal(err)
	}
	serving.Router = n.router
	if n.api, err = httpapi.New(serving); err != nil {
		f.t.Fatal(err)
	}
	n.Start()
	f.t.Cleanup(func() {
		n.router.Close(context.Background())
		n.api.Close()
		n.Close()
	})
	return n
}

// A reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, strings.TrimSpace(r.body)) }

func (r reply) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%v in %s", err, r)
	}
}

type problem struct {
	Type, Title, Detail, Code, Owner, Address string
	Status                                    int
	Epoch                                     uint64
}

// problem checks the form of a refusal and returns it.
func (r reply) problem(t *testing.T) problem {
	t.Helper()
	var p problem
	r.into(t, &p)
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q of %s", got, r)
	}
	if p.Status != r.status || p.Code == "" || p.Title == "" || p.Detail == "" || p.Type == "" {
		t.Errorf("incomplete problem: %s", r)
	}
	if r.header.Get(httpapi.HeaderReplica) == "" {
		t.Errorf("no %s in %s", httpapi.HeaderReplica, r)
	}
	if (r.status == 503) != (r.header.Get("Retry-After") != "") {
		t.Errorf("Retry-After %q in %s", r.header.Get("Retry-After"), r)
	}
	return p
}

// do sends a request; a path of bad bytes goes out as it stands.
func (n *node) do(method, path, body string, header ...string) reply {
	n.fleet.t.Helper()
	req, err := http.NewRequest(method, n.URL, strings.NewReader(body))
	if err != nil {
		n.fleet.t.Fatal(err)
	}
	req.URL.Opaque = path
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := n.fleet.client.Do(req)
	if err != nil {
		n.fleet.t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, resp.Body); err != nil {
		n.fleet.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, text.String()}
}

func (n *node) must(status int, method, path, body string, header ...string) reply {
	n.fleet.t.Helper()
	got := n.do(method, path, body, header...)
	if got.status != status {
		n.fleet.t.Fatalf("%s %s: got %s, want %d", method, path, got, status)
	}
	return got
}

// refused checks a refusal's status and code.
func (n *node) refused(status int, code coord.Code, method, path, body string, header ...string) problem {
	n.fleet.t.Helper()
	got := n.do(method, path, body, header...)
	p := got.problem(n.fleet.t)
	if got.status != status || p.Code != string(code) {
		n.fleet.t.Errorf("%s %s: got %s, want %d %s", method, path, got, status, code)
	}
	return p
}

// wantUntouched fails if anything was asked of the lease store or lies in the
// state directory.
func (n *node) wantUntouched(what string) {
	n.fleet.t.Helper()
	if reads, acquires := n.fleet.leases.reads.Load(), n.fleet.leases.acquires.Load(); reads+acquires > 0 {
		n.fleet.t.Errorf("%s: the lease store was asked: %d reads, %d acquires", what, reads, acquires)
	}
	if _, err := os.Stat(filepath.Join(n.root, "orgs")); err == nil {
		n.fleet.t.Errorf("%s: a directory was made", what)
	}
}

func event(idem string) string {
	return fmt.Sprintf(`{"actor":"a","kind":"note.added","subject_id":"s","payload":{"n":1},"idem_key":%q}`, idem)
}
