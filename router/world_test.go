package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/memstore"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl    = 10 * time.Second
	margin = 2 * time.Second
)

// A world is a lease store and a copy store, with switches, that routers share.
// Everything runs on the bubble's clock.
type world struct {
	t      *testing.T
	clock  coord.Clock
	leases *switchedLeases
	copies *switchedCopies
}

// inWorld runs a test in a bubble, so that timeouts of minutes pass at once.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := coordtest.BubbleClock()
		test(t, &world{
			t: t, clock: clock,
			leases: &switchedLeases{Store: memlease.New(clock)},
			copies: &switchedCopies{Store: memstore.New()},
		})
	})
}

// A node is a router and what its observer saw.
type node struct {
	*router.Router
	t  *testing.T
	mu struct {
		sync.Mutex
		events []router.Event
	}
}

// router makes a router that is closed with the test.
func (w *world) router(id string, change ...func(*router.Options)) *node {
	w.t.Helper()
	n := &node{t: w.t}
	opts := router.Options{
		ReplicaID: id, StateRoot: w.t.TempDir(), Leases: w.leases, Copies: w.copies,
		LeaseTTL: ttl, LeaseMargin: margin, Clock: w.clock, Observer: n.observe,
	}
	for _, f := range change {
		f(&opts)
	}
	r, err := router.New(opts)
	if err != nil {
		w.t.Fatal(err)
	}
	n.Router = r
	w.t.Cleanup(func() { r.Close(context.Background()) })
	return n
}

func (n *node) observe(e router.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.events = append(n.mu.events, e)
}

// kinds returns the events so far, without renewals, in words.
func (n *node) kinds() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	var kinds []string
	for _, e := range n.mu.events {
		word := string(e.Kind)
		switch e.Kind {
		case router.EventRenewed:
			continue
		case router.EventReleased:
			word = fmt.Sprintf("released(%v)", e.Flushed)
		case router.EventSnapshot:
			word = fmt.Sprintf("snapshot(%d)", e.Seq)
		case router.EventSnapshotFailed, router.EventRenewFailed:
			word = fmt.Sprintf("%s(%s)", e.Kind, e.Code)
		case router.EventDrainTimeout:
			word = fmt.Sprintf("drain_timeout(%d)", e.InFlight)
		}
		kinds = append(kinds, word)
	}
	return kinds
}

func (n *node) wantKinds(want ...string) {
	n.t.Helper()
	if got := n.kinds(); !slices.Equal(got, want) {
		n.t.Errorf("events %v, want %v", got, want)
	}
}

func (n *node) open(key coord.Key) *router.Handle {
	n.t.Helper()
	h, err := n.Open(n.t.Context(), key)
	if err != nil {
		n.t.Fatal(err)
	}
	return h
}

func key(t *testing.T, n int) coord.Key {
	t.Helper()
	k, err := coord.NewKey("acme", fmt.Sprintf("t-%032x", n))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// add appends an event through Run.
func add(ctx context.Context, h *router.Handle, id string) error {
	return h.Run(ctx, func(ctx context.Context, v *router.View) error {
		_, _, err := v.Ledger().Append(ctx, ledger.Event{Actor: "test", Kind: "note", Payload: []byte("{}"), IdemKey: id})
		return err
	})
}

func mustAdd(t *testing.T, h *router.Handle, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := add(t.Context(), h, id); err != nil {
			t.Fatalf("append %s: %v", id, err)
		}
	}
}

// held returns the idempotency keys of all events.
func held(t *testing.T, h *router.Handle) []string {
	t.Helper()
	events, err := h.Ledger().Read(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, e := range events {
		ids = append(ids, e.IdemKey)
	}
	return ids
}

func wantHeld(t *testing.T, h *router.Handle, want ...string) {
	t.Helper()
	if got := held(t, h); !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("the ledger holds %v, want %v", got, want)
	}
}

func wantCode(t *testing.T, err error, want coord.Code) {
	t.Helper()
	if got := coord.CodeOf(err); err == nil || got != want {
		t.Errorf("got %v (%s), want %s", err, got, want)
	}
}

// A busy call of Run lasts until end is called.
type busy struct {
	release chan struct{}
	result  chan error
}

func startBusy(t *testing.T, h *router.Handle) *busy {
	t.Helper()
	b := &busy{release: make(chan struct{}), result: make(chan error, 1)}
	go func() {
		b.result <- h.Run(context.Background(), func(ctx context.Context, v *router.View) error {
			<-b.release
			_, _, err := v.Ledger().Append(ctx, ledger.Event{Actor: "test", Kind: "note", Payload: []byte("{}"), IdemKey: "busy"})
			return err
		})
	}()
	synctest.Wait()
	return b
}

func (b *busy) end() error {
	close(b.release)
	return <-b.result
}

var errSwitchedOff = errors.New("switched off by the test")

// switchedLeases counts requests, and fails or refuses those that a test says.
type switchedLeases struct {
	*memlease.Store
	mu struct {
		sync.Mutex
		calls  map[string]int
		fail   map[string]error
		before map[string]func()
	}
}

// before calls f whenever op is about to be asked of the store.
func (s *switchedLeases) before(op string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.before = map[string]func(){op: f}
}

func (s *switchedLeases) fail(op string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.fail == nil {
		s.mu.fail = make(map[string]error)
	}
	s.mu.fail[op] = err
}

func (s *switchedLeases) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.calls[op]
}

func (s *switchedLeases) call(op string) error {
	s.mu.Lock()
	before := s.mu.before[op]
	s.mu.Unlock()
	if before != nil {
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.calls == nil {
		s.mu.calls = make(map[string]int)
	}
	s.mu.calls[op]++
	return s.mu.fail[op]
}

func (s *switchedLeases) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	if err := s.call("acquire"); err != nil {
		return coord.Grant{}, err
	}
	return s.Store.Acquire(ctx, key, owner, ttl)
}

func (s *switchedLeases) Renew(ctx context.Context, t coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	if err := s.call("renew"); err != nil {
		return coord.Grant{}, err
	}
	return s.Store.Renew(ctx, t, ttl)
}

func (s *switchedLeases) Release(ctx context.Context, t coord.Tenure) error {
	if err := s.call("release"); err != nil {
		return err
	}
	return s.Store.Release(ctx, t)
}

func (s *switchedLeases) MarkForgotten(ctx context.Context, t coord.Tenure) (coord.Epoch, error) {
	if err := s.call("forget"); err != nil {
		return 0, err
	}
	return s.Store.MarkForgotten(ctx, t)
}

// switchedCopies counts requests and can fail them, or hold them until a test lets go.
type switchedCopies struct {
	copystore.Store
	mu struct {
		sync.Mutex
		calls   int
		images  int // read
		running int
		fail    error
		hold    chan struct{} // nil: pass
	}
}

func (s *switchedCopies) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fail = err
}

// hold makes creates wait until the returned function is called.
func (s *switchedCopies) hold() (letGo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := make(chan struct{})
	s.mu.hold = hold
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.hold = nil
		close(hold)
	}
}

func (s *switchedCopies) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.calls
}

// Open implements copystore.Store.
func (s *switchedCopies) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	s.mu.Lock()
	if strings.HasSuffix(name, ".db") {
		s.mu.images++
	}
	s.mu.Unlock()
	return s.Store.Open(ctx, name)
}

// imagesRead is how often an image was read.
func (s *switchedCopies) imagesRead() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.images
}

// running is the number of creates under way.
func (s *switchedCopies) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.running
}

func (s *switchedCopies) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	s.mu.Lock()
	s.mu.calls++
	s.mu.running++
	err, hold := s.mu.fail, s.mu.hold
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.running--
	}()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return s.Store.Create(ctx, name, r, size)
}

func (s *switchedCopies) names(t *testing.T) []string {
	t.Helper()
	var names []string
	for o, err := range s.Store.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}
