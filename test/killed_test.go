package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// RO-11: one replica of three is killed under load. Its tenants are served again when
// their leases have ended and lose nothing that a committed copy has; what they lose was
// acknowledged no longer before than copies are apart. Nobody else's tenants notice.
func TestKilledUnderLoad(t *testing.T) {
	const ttl, snapshotEvery = 12 * time.Second, 2 * time.Second
	args := []string{"--lease-ttl", ttl.String(), "--snapshot-every", snapshotEvery.String()}
	f := newFleet(t)
	c := newCrew(f.start("k0", args...), f.start("k1", args...), f.start("k2", args...))
	keys := numberedKeys(t, 24)
	clerks := hireClerks(8, c, keys)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() { cancel(); working.Wait() }()
	for _, clerk := range clerks {
		working.Go(func() {
			if err := clerk.work(ctx, 10_000); err != nil {
				t.Error(err)
			}
		})
	}
	awaitProgress(t, clerks, 5*3) // every tenant has a few events
	victim := c.member(0)
	id := victim.id()
	f.awaitAnyCopy(keys)
	mine := make(map[coord.Key]bool)
	for _, key := range keys {
		mine[key] = victim.state(key).Owner == id
	}

	victim.signal(syscall.SIGKILL)
	killed := time.Now()
	<-victim.exited
	copied := f.newestCopies()
	c.replace(0, c.member(1))
	awaitProgress(t, clerks, 5*3) // every tenant is served again
	cancel()
	working.Wait()

	var mu sync.Mutex
	var takeovers []time.Duration
	lost, oldest := 0, time.Duration(0)
	for _, clerk := range clerks {
		forEach(t, clerk.keys, func(key coord.Key) error {
			acks := clerk.acks[key]
			if !mine[key] {
				return wantAcked(c.member(1), key, acks)
			}
			before, after := splitAt(acks, killed)
			if len(after) == 0 || after[0].epoch != 2 {
				return fmt.Errorf("not taken over: %d events after the kill", len(after))
			}
			kept, gone, err := survivors(c.member(1).idemKeys(key), before, after)
			if err != nil {
				return err
			}
			if int64(kept) < copied[key.String()] {
				return fmt.Errorf("%d of the events before the kill are left, and the newest copy had %d", kept, copied[key.String()])
			}
			mu.Lock()
			defer mu.Unlock()
			takeovers = append(takeovers, after[0].at.Sub(killed))
			for _, a := range gone {
				lost, oldest = lost+1, max(oldest, killed.Sub(a.at))
			}
			return nil
		})
	}
	if len(takeovers) == 0 {
		t.Fatal("the killed replica had no tenant")
	}
	slices.Sort(takeovers)
	t.Logf("%d tenants taken over between %v and %v after the kill (median %v) at a TTL of %v; %d events lost, the oldest acknowledged %v before it, with copies every %v",
		len(takeovers), takeovers[0], takeovers[len(takeovers)-1], takeovers[len(takeovers)/2], ttl, lost, oldest, snapshotEvery)
	// The time that copies take on a machine this busy is not the protocol's.
	if limit := snapshotEvery + 15*time.Second; oldest > limit {
		t.Errorf("an event that was acknowledged %v before the kill is lost", oldest)
	}
}

// awaitAnyCopy returns once every tenant has a copy.
func (f *fleet) awaitAnyCopy(keys []coord.Key) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for len(f.newestCopies()) < len(keys) {
		if !pause(ctx, 50*time.Millisecond) {
			f.t.Fatalf("%d of %d tenants have a copy", len(f.newestCopies()), len(keys))
		}
	}
}

// splitAt parts what was acknowledged by the time. An answer that was under way may be
// noted a little later than the kill, at the killed replica's epoch.
func splitAt(acks []timedAck, killed time.Time) (before, after []timedAck) {
	for i, a := range acks {
		if a.at.After(killed) && a.epoch > 1 {
			return acks[:i], acks[i:]
		}
	}
	return acks, nil
}

// survivors checks that a ledger holds the first so many of the events before, and all
// of those after, once each. An event whose answer was lost may be among either.
func survivors(got []string, before, after []timedAck) (kept int, gone []timedAck, err error) {
	if unique := slices.Compact(slices.Sorted(slices.Values(got))); len(unique) != len(got) {
		return 0, nil, fmt.Errorf("something stands twice: %v", got)
	}
	for kept < len(before) && kept < len(got) && got[kept] == before[kept].id {
		kept++
	}
	gone = before[kept:]
	for _, a := range gone {
		if slices.Contains(got, a.id) {
			return 0, nil, fmt.Errorf("%s survived and an earlier event did not: %v", a.id, got)
		}
	}
	for _, a := range after {
		if !slices.Contains(got, a.id) {
			return 0, nil, fmt.Errorf("acknowledged event %s is missing: %v", a.id, got)
		}
	}
	return kept, gone, nil
}
