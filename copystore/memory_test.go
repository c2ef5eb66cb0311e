package copystore_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
)

// peakHeap runs work and returns how many bytes the heap grew at most, as far as
// it was looked at.
func peakHeap(work func()) int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, peak := int64(m.HeapAlloc), int64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
			runtime.ReadMemStats(&m)
			peak = max(peak, int64(m.HeapAlloc)-before)
		}
	}()
	work()
	close(stop)
	<-stopped
	return peak
}

// Issue 5, 2 and 3, trap 37: a copy of 200 MB is published and restored within a
// fixed amount of memory, and its progress is reported.
func TestLargeCopyNeedsLittleMemory(t *testing.T) {
	const size = 200 << 20
	store, err := dirstore.New(t.TempDir(), dirstore.Options{})
	must(t, err)
	defer store.Close()
	copies, err := copystore.New(store, copystore.Options{})
	must(t, err)
	key := testKey(t, "a")
	grant := func(e coord.Epoch) coord.Grant {
		return coord.Grant{Tenure: coord.Tenure{Key: key, Owner: "replica", Epoch: e}, Revision: coord.Revision(e)}
	}
	held := func() error { return nil }
	var steps []copystore.Transfer
	progress := func(tr copystore.Transfer) { steps = append(steps, tr) }
	checkSteps := func(what string) {
		t.Helper()
		if len(steps) < 20 || !slices.IsSortedFunc(steps, func(a, b copystore.Transfer) int { return int(a.Done - b.Done) }) ||
			steps[0].Total != size || steps[len(steps)-1].Done > size || steps[0].Key != key || steps[0].Copy != (copystore.Ref{Epoch: 1, Seq: 1}) {
			t.Errorf("%s reports %v", what, steps)
		}
		steps = nil
	}

	dir := t.TempDir()
	first, err := copies.Claim(t.Context(), grant(1), nil)
	must(t, err)
	grew := peakHeap(func() {
		_, err = first.Publish(t.Context(), copystore.PublishRequest{
			Dir: dir, Prove: held, Progress: progress,
			TakeImage: func(_ context.Context, path string) (int64, error) {
				f, err := os.Create(path)
				must(t, err)
				must(t, f.Truncate(size), f.Close())
				return 1, nil
			},
		})
	})
	must(t, err)
	checkSteps("publish")
	t.Logf("publishing takes %d KiB", grew>>10)
	if grew > 16<<20 {
		t.Errorf("publishing takes %d bytes of heap", grew)
	}
	grew = peakHeap(func() {
		_, err = copies.Restore(t.Context(), grant(2), copystore.RestoreRequest{
			Path: filepath.Join(dir, "ledger.db"), StillHeld: held, Prove: held, Progress: progress,
			Verify: func(context.Context, string) (int64, error) { return 1, nil },
		})
	})
	must(t, err)
	checkSteps("restore")
	t.Logf("restoring takes %d KiB", grew>>10)
	if grew > 16<<20 {
		t.Errorf("restoring takes %d bytes of heap", grew)
	}
}
