//go:build linux

package test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limitFiles leaves the replica room for so many more descriptors than it has open.
func (r *replica) limitFiles(room int) (restore func()) {
	r.t.Helper()
	pid := r.cmd.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		r.t.Fatal(err)
	}
	taken := make(map[uint64]bool)
	for _, e := range open {
		var n uint64
		if _, err := fmt.Sscan(e.Name(), &n); err == nil {
			taken[n] = true
		}
	}
	// New descriptors get the lowest free numbers, below the limit.
	var cur uint64
	for free := 0; free < room || taken[cur]; cur++ {
		if !taken[cur] {
			free++
		}
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		r.t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: cur, Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Trap 72: a replica that has no descriptor left refuses the new tenant with a code of
// its own and gives its lease back; the tenants that it holds are renewed and served as
// before, and nobody restores an older copy because the newest could not be read.
func TestDescriptorsRunOut(t *testing.T) {
	f := newFleet(t)
	const ttl = 6 * time.Second
	a, b := f.start("a", "--lease-ttl", ttl.String()), f.start("b", longLease...)
	keys := numberedKeys(t, 4)
	held, moved, fresh := keys[:2], keys[2], keys[3]
	for i, key := range held {
		a.must(201, "POST", tenantPath(key)+"/events", note(fmt.Sprintf("first-%d", i)))
	}
	for i := range 3 { // three copies, so that there are older ones to fall back on
		b.must(201, "POST", tenantPath(moved)+"/events", note(fmt.Sprint("moved-", i)))
		b.must(200, "POST", tenantPath(moved)+"/snapshot", nil)
	}
	b.must(200, "POST", tenantPath(moved)+"/handoff", nil)

	// With more and more room the opening comes further before it fails.
	for room, opened := 0, false; !opened; room++ {
		restore := a.limitFiles(room)
		got, err := a.do(t.Context(), "POST", tenantPath(moved)+"/events", note("moved-3"))
		switch {
		case err != nil:
			t.Fatal(err)
		case ok(got):
			opened = true
		case got.status != 503 || got.code() != "RESOURCES_EXHAUSTED" && got.code() != "OWNER_UNREACHABLE":
			t.Errorf("room for %d: %s", room, got)
		}
		if room == 0 && opened {
			t.Error("the limit does not bite: the test shows nothing")
		}
		if room > 64 {
			t.Fatal("it never opened")
		}
		restore()
	}
	if got := a.idemKeys(moved); len(got) != 4 {
		t.Errorf("the tenant was restored from an older copy: %v", got)
	}

	restore := a.limitFiles(0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
	defer cancel()
	for i := 0; pause(ctx, 50*time.Millisecond); i++ {
		for _, key := range held {
			a.must(201, "POST", tenantPath(key)+"/events", note(fmt.Sprintf("more-%d", i)))
		}
		if got, err := a.do(t.Context(), "POST", tenantPath(fresh)+"/events", note("fresh")); err != nil || got.code() != "RESOURCES_EXHAUSTED" {
			t.Fatalf("a new tenant: %s, %v", got, err)
		}
	}
	for _, key := range held {
		if s := a.state(key); s.Epoch != 1 || s.Owner != a.id() {
			t.Errorf("%s is held by %s at epoch %d", key, s.Owner, s.Epoch)
		}
	}
	restore()
	a.must(201, "POST", tenantPath(fresh)+"/events", note("fresh"))
}
