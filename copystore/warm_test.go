package copystore_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// A countingStore counts the images that are read.
type countingStore struct {
	copystore.Store
	images *atomic.Int64
}

func (s countingStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasSuffix(name, ".db") {
		s.images.Add(1)
	}
	return s.Store.Open(ctx, name)
}

// CP-4: a warm copy saves the download if it is exactly what the lineage says after the
// grant and is as it was when it was verified; anything else is fetched again.
func TestWarmCopyDecidesNothing(t *testing.T) {
	cases := []struct {
		name      string
		between   func(w *world, owner *owner, file string) // after the copy was warmed
		want      []string
		downloads int64
	}{
		{"nothing happened", func(*world, *owner, string) {}, []string{"a1", "a2"}, 0},
		{"a newer copy", func(w *world, o *owner, _ string) {
			o.write("a3")
			must(w.t, o.publish())
		}, []string{"a1", "a2", "a3"}, 1},
		{"the file changed", func(w *world, _ *owner, file string) {
			info, err := os.Stat(file)
			must(w.t, err)
			later := info.ModTime().Add(time.Second) // the clock of a file system may stand still for some milliseconds
			must(w.t, os.WriteFile(file, []byte(strings.Replace(image(w.key, []string{"a1", "a2"}), "a2", "zz", 1)), 0o600), os.Chtimes(file, later, later))
		}, []string{"a1", "a2"}, 1},
		{"the file is another", func(w *world, _ *owner, file string) {
			info, err := os.Stat(file)
			must(w.t, err)
			other := file + ".other"
			must(w.t, os.WriteFile(other, []byte(image(w.key, []string{"z1", "z2"})), 0o600), os.Chtimes(other, info.ModTime(), info.ModTime()), os.Rename(other, file))
		}, []string{"a1", "a2"}, 1},
		{"the file is gone", func(w *world, _ *owner, file string) { must(w.t, os.Remove(file)) }, []string{"a1", "a2"}, 1},
		{"the copy is gone", func(w *world, _ *owner, _ string) {
			w.remove("e00000001/snap-000002.json")
		}, []string{"a1"}, 1},
		{"the manifest is another", func(w *world, _ *owner, _ string) {
			body := image(w.key, []string{"a1", "b2"})
			w.put("e00000001/snap-000002.db", body)
			w.put("e00000001/snap-000002.json", encodeManifest(w.t, w.key, copystore.Ref{Epoch: 1, Seq: 2}, body, 2))
		}, []string{"a1", "b2"}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			owner := w.tenure("a1", "a2")
			var images atomic.Int64
			next := w.acquire(func(s copystore.Store) copystore.Store { return countingStore{s, &images} })
			warm, err := w.copies().Warm(t.Context(), w.key, 0, next.dir, w.extract(""))
			must(t, err)
			files, err := filepath.Glob(filepath.Join(next.dir, ".warm-*", "copy.db"))
			must(t, err)
			// The owner is still the one that it was before the next acquired.
			w.mu.latest = owner.grant.Epoch
			c.between(w, owner, files[0])
			w.mu.latest = next.grant.Epoch

			req := next.request()
			req.Warm = warm
			if _, err := next.copies.Restore(t.Context(), next.grant, req); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(next.path())
			must(t, err)
			if string(b) != image(w.key, c.want) {
				t.Errorf("restored %q, want %q", b, c.want)
			}
			if images.Load() != c.downloads {
				t.Errorf("%d images were downloaded, want %d", images.Load(), c.downloads)
			}
			must(t, warm.Discard(), warm.Discard())
			if left := next.files(); !slices.Equal(left, []string{"ledger.db"}) {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// What a crash leaves of a warm copy is swept, and never believed.
func TestWarmLeftoversAreSwept(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	next := w.acquire()
	_, err := w.copies().Warm(t.Context(), w.key, 0, next.dir, w.extract(""))
	must(t, err, next.open())
	if left := next.files(); !slices.Equal(left, []string{"ledger.db"}) {
		t.Errorf("left behind: %v", left)
	}
}

// A tenant without copies, or without one that can be trusted, leaves nothing warm.
func TestNothingToWarm(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "next")
	_, err := w.copies().Warm(t.Context(), w.key, 0, dir, w.extract(""))
	if coord.CodeOf(err) != coord.CodeTenantUnknown {
		t.Errorf("got %v, want %s", err, coord.CodeTenantUnknown)
	}
	w.tenure("a1")
	w.put("e00000001/snap-000001.db", "damaged")
	_, err = w.copies().Warm(t.Context(), w.key, 0, dir, w.extract(""))
	if coord.CodeOf(err) != coord.CodeRestoreInvalid {
		t.Errorf("got %v, want %s", err, coord.CodeRestoreInvalid)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A ledger that was retired is out of the way at once, and is swept if it was not removed.
func TestRetire(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	next := w.acquire()
	next.seed("ledger.db")
	remove, err := copystore.Retire(next.path())
	must(t, err)
	if _, err := os.Stat(next.path()); !os.IsNotExist(err) {
		t.Errorf("the ledger is still in the way: %v", err)
	}
	must(t, next.open())
	if left := next.files(); !slices.Equal(left, []string{"ledger.db"}) {
		t.Errorf("left behind: %v", left)
	}
	must(t, remove())
	if _, err := copystore.Retire(next.path() + "-none"); err == nil {
		t.Error("retired a ledger that is not there")
	}
	if left := next.files(); !slices.Equal(left, []string{"ledger.db"}) {
		t.Errorf("left behind: %v", left)
	}
}
