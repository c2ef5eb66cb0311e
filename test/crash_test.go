package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/test/flights"
)

// A short TTL, so that a takeover takes seconds; the margin leaves a slow machine
// enough to renew within.
var shortLease = []string{"--lease-ttl", "8s", "--lease-margin", "2s"}

// newestCopies reads the copies directory and returns the number of events in
// each tenant's newest manifest.
func (f *fleet) newestCopies() map[string]int64 {
	f.t.Helper()
	type manifest struct {
		Key    string
		Epoch  uint64
		Seq    uint64
		Events int64
	}
	newest := make(map[string]manifest)
	err := filepath.WalkDir(f.copies, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(d.Name(), "snap-") || !strings.HasSuffix(path, ".json") {
			return ignoreMissing(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return ignoreMissing(err)
		}
		var m manifest
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if have := newest[m.Key]; m.Epoch > have.Epoch || m.Epoch == have.Epoch && m.Seq > have.Seq {
			newest[m.Key] = m
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	events := make(map[string]int64, len(newest))
	for key, m := range newest {
		events[key] = m.Events
	}
	return events
}

// ignoreMissing is for files that retention removes while they are read.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// awaitCopies returns once the newest copies hold all events.
func (f *fleet) awaitCopies(groups map[coord.Key][]flights.Flight) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		copied := f.newestCopies()
		behind := 0
		for key, group := range groups {
			if copied[key.String()] != int64(len(group)) {
				behind++
			}
		}
		if behind == 0 {
			return
		}
		if !pause(ctx, 50*time.Millisecond) {
			f.t.Fatalf("the copies of %d tenants never caught up", behind)
		}
	}
}

// RO-11: kill -9 of the owner loses what its last copies lack, which after a quiet
// second with copies every second is nothing.
func TestKilledOwner(t *testing.T) {
	f := newFleet(t)
	args := append([]string{"--snapshot-every", "1s"}, shortLease...)
	a, b := f.start("a", args...), f.start("b", args...)
	groups := byTenant(loadFlights(t))
	appendFlights(t, groups, a)
	f.awaitCopies(groups)

	a.signal(syscall.SIGKILL)
	killed := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	var slowest time.Duration
	forEach(t, keysOf(groups), func(key coord.Key) error {
		got, err := appendEvent(ctx, key, note("after-the-kill"), b)
		if err != nil {
			return err
		}
		mu.Lock()
		slowest = max(slowest, time.Since(killed))
		mu.Unlock()
		if want := uint64(len(groups[key]) + 1); got.Epoch != 2 || got.Seq != want {
			return fmt.Errorf("the append got epoch %d, seq %d, want epoch 2, seq %d", got.Epoch, got.Seq, want)
		}
		return wantFlights(b, key, groups[key])
	})
	t.Logf("%d tenants taken over, the last one %v after the kill", len(groups), slowest.Round(time.Millisecond))
}

// What was written after the last copy is lost by a crash, and nothing before it.
func TestKilledOwnerServesTheLastCopy(t *testing.T) {
	f := newFleet(t)
	args := append([]string{"--snapshot-every", "0"}, shortLease...)
	a, b := f.start("a", args...), f.start("b", args...)
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("copied"))
	a.must(200, "POST", tenantPath(key)+"/snapshot", nil)
	a.must(201, "POST", tenantPath(key)+"/events", note("not copied"))
	a.signal(syscall.SIGKILL)
	if got := b.idemKeys(key); len(got) != 1 || got[0] != "copied" {
		t.Errorf("after the crash the ledger holds %v, want what the last copy held", got)
	}
}

// Trap 2: the owner is stopped for longer than the TTL while appends are in flight.
// B takes over; when A wakes it acknowledges nothing of its old tenure, and nothing
// that it committed after B's grant is in any later ledger.
func TestPausedOwner(t *testing.T) {
	f := newFleet(t)
	args := append([]string{"--snapshot-every", "0"}, shortLease...)
	a, b := f.start("a", args...), f.start("b", args...)
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("first"))
	a.must(200, "POST", tenantPath(key)+"/snapshot", nil)

	load := startLoad(t, a, key, 6)
	load.awaitAcks(20)
	a.signal(syscall.SIGSTOP)
	stopped := time.Now()
	taken := b.eventually(patience, "POST", tenantPath(key)+"/events", note("by b"), ok)
	var atB ack
	takenOver := time.Now()
	taken.into(t, &atB)
	if atB.Epoch != 2 {
		t.Fatalf("b appended at epoch %d, want 2", atB.Epoch)
	}
	// TTL − what had passed of it since A's last renewal; never at once.
	if waited := time.Since(stopped); waited < time.Second {
		t.Errorf("b took over %v after the stop", waited)
	}
	before := load.count()
	a.signal(syscall.SIGCONT)
	a.eventually(patience, "GET", "/v1/replica", nil, ok)
	load.awaitAcks(before + 20) // by forwarding to b
	load.stop()

	// Retire b, so that what is read below was restored from the copies.
	b.must(200, "POST", tenantPath(key)+"/handoff", nil)
	c := f.start("c", args...)
	final := make(map[string]bool)
	for _, id := range c.idemKeys(key) {
		final[id] = true
	}
	if !final["first"] || !final["by b"] {
		t.Errorf("the final ledger lacks an event that was copied or handed off: %v", final)
	}
	late := 0
	for id, acked := range load.acks() {
		switch {
		case acked.epoch == 2 && !final[id]:
			t.Errorf("%s was acknowledged at epoch 2 and is missing", id)
		case acked.epoch == 1 && acked.at.After(takenOver):
			t.Errorf("%s was acknowledged at epoch 1, %v after another owner's first", id, acked.at.Sub(takenOver))
		case acked.epoch == 2:
			late++
		}
	}
	for id := range final {
		if acked, known := load.acks()[id]; known && acked.epoch == 1 {
			t.Errorf("%s was written at epoch 1 after the last copy and came back", id)
		}
	}
	t.Logf("%d appends acknowledged, %d of them by the new owner; refusals: %v", load.count(), late, load.refusals())
}

// A load appends to one tenant from several clients until it is stopped, each
// event under a key of its own and never repeated.
type load struct {
	t      *testing.T
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		acks     map[string]ackAt
		refusals map[string]int // by code
		changed  chan struct{}
	}
}

type ackAt struct {
	epoch uint64
	at    time.Time
}

func startLoad(t *testing.T, r *replica, key coord.Key, clients int) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, cancel: cancel}
	l.mu.acks, l.mu.refusals, l.mu.changed = make(map[string]ackAt), make(map[string]int), make(chan struct{})
	for c := range clients {
		l.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("load-%d-%d", c, i)
				got, err := r.do(ctx, "POST", tenantPath(key)+"/events", note(id))
				if err == nil && l.record(id, got) {
					continue
				}
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) record(id string, got reply) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok(got) {
		l.mu.refusals[got.code()]++
		if got.status != 503 {
			l.t.Errorf("append %s: %s", id, got)
		}
		return false
	}
	var a ack
	if err := json.Unmarshal(got.body, &a); err != nil {
		l.t.Errorf("append %s: %v in %s", id, err, got)
	}
	l.mu.acks[id] = ackAt{epoch: a.Epoch, at: time.Now()}
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	return true
}

func (l *load) count() int { return len(l.acks()) }

func (l *load) acks() map[string]ackAt {
	l.mu.Lock()
	defer l.mu.Unlock()
	clone := make(map[string]ackAt, len(l.mu.acks))
	for id, a := range l.mu.acks {
		clone[id] = a
	}
	return clone
}

func (l *load) refusals() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	clone := make(map[string]int, len(l.mu.refusals))
	for code, n := range l.mu.refusals {
		clone[code] = n
	}
	return clone
}

// awaitAcks returns once n appends were acknowledged.
func (l *load) awaitAcks(n int) {
	l.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		l.mu.Lock()
		have, changed := len(l.mu.acks), l.mu.changed
		l.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			l.t.Fatalf("%d appends acknowledged, want %d; refusals: %v", have, n, l.refusals())
		}
	}
}

func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// HL-5: with etcd killed the owner serves until its fence and then refuses; with
// etcd back, after longer than the TTL, it serves again at the same epoch, since
// nobody took over.
func TestEtcdKilledAndBack(t *testing.T) {
	f := newFleet(t)
	host := []string{"--embedded-etcd-client", embedetcd.FreeAddrT(t), "--embedded-etcd-peer", embedetcd.FreeAddrT(t), "--state-dir", t.TempDir(), "--copies", f.copies}
	etcd := startReplica(t, f.client, host...)
	const ttl = 12 * time.Second
	a := startReplica(t, f.client, "--etcd", host[1], "--copies", f.copies, "--snapshot-every", "0", "--lease-ttl", ttl.String(), "--lease-margin", "2s")
	keys := numberedKeys(t, 10)
	forEach(t, keys, func(key coord.Key) error {
		_, err := appendEvent(t.Context(), key, note("before"), a)
		return err
	})

	etcd.signal(syscall.SIGKILL)
	killed := time.Now()
	etcd.wait(patience)
	forEach(t, keys, func(key coord.Key) error {
		got, err := a.do(t.Context(), "POST", tenantPath(key)+"/events", note("without etcd"))
		if err == nil && !ok(got) {
			err = fmt.Errorf("in front of the fence: %s", got)
		}
		return err
	})
	forEach(t, keys, func(key coord.Key) error {
		refused := a.eventually(patience, "POST", tenantPath(key)+"/events", note("behind the fence"), func(got reply) bool {
			if ok(got) && time.Since(killed) > ttl {
				t.Errorf("acknowledged %v after etcd was killed, beyond the TTL", time.Since(killed))
			}
			return !ok(got)
		})
		if code := refused.code(); code != string(coord.CodeFenced) && code != string(coord.CodeOutcomeUnknown) {
			return fmt.Errorf("behind the fence: %s, want FENCED", refused)
		}
		return nil
	})
	for pause(t.Context(), 500*time.Millisecond) && time.Since(killed) < ttl+ttl/4 {
		if got := a.must(503, "POST", tenantPath(keys[0])+"/events", note("fenced")); got.code() != string(coord.CodeFenced) {
			t.Fatalf("behind the fence: %s, want FENCED", got)
		}
	}

	startReplica(t, f.client, host...)
	forEach(t, keys, func(key coord.Key) error {
		got, err := appendEvent(t.Context(), key, note("after"), a)
		if err == nil && got.Epoch != 1 {
			err = fmt.Errorf("serves again at epoch %d, want 1", got.Epoch)
		}
		return err
	})
	for _, id := range []string{"before", "without etcd", "after"} {
		if got := a.idemKeys(keys[0]); !slices.Contains(got, id) {
			t.Errorf("acknowledged event %q is missing from %v", id, got)
		}
	}
}
