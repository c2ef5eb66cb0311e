package copystore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

const (
	newest   = "e00000002/snap-000002"
	older    = "e00000002/snap-000001"
	ancestor = "e00000001/snap-000002"
)

// twoTenures leaves four copies: a1, a1 a2 | a1 a2 b1, a1 a2 b1 b2.
func twoTenures(t *testing.T) *world {
	w := newWorld(t)
	w.tenure("a1", "a2")
	w.tenure("b1", "b2")
	return w
}

// rewrite changes a manifest and gives it a checksum that matches.
func (w *world) rewrite(ref string, change func(m *copystore.Manifest)) {
	w.t.Helper()
	var epoch coord.Epoch
	var seq uint64
	if _, err := fmt.Sscanf(ref, "e%d/snap-%d", &epoch, &seq); err != nil {
		w.t.Fatal(err)
	}
	m, err := copystore.ParseManifest([]byte(w.get(ref+".json")), w.key, copystore.Ref{Epoch: epoch, Seq: seq})
	must(w.t, err)
	change(&m)
	b, err := m.Encode()
	must(w.t, err)
	w.put(ref+".json", string(b))
}

func flip(s string, at int) string {
	b := []byte(s)
	b[at] ^= 1
	return string(b)
}

// Trap 34 and issue 5 c: whatever is wrong with the newest copy, it is refused
// with its reason and the next older one is taken.
func TestCorruptCopyIsSkipped(t *testing.T) {
	other := image(testKey(t, "b"), []string{"x", "x", "x", "x"})
	field := func(change func(m *copystore.Manifest)) func(*world) {
		return func(w *world) { w.rewrite(newest, change) }
	}
	cases := []struct {
		name   string
		damage func(w *world)
		reason string
	}{
		{"image bit", func(w *world) { w.put(newest+".db", flip(w.get(newest+".db"), 50)) }, "another SHA-256"},
		{"image truncated", func(w *world) { w.put(newest+".db", strings.TrimSuffix(w.get(newest+".db"), "\n")) }, "the manifest says"},
		{"image extended", func(w *world) { w.put(newest+".db", w.get(newest+".db")+"\n") }, "longer than"},
		{"image empty", func(w *world) { w.put(newest+".db", "") }, "image has 0 bytes"},
		{"image zeros", func(w *world) { w.put(newest+".db", strings.Repeat("\x00", len(w.get(newest+".db")))) }, "another SHA-256"},
		{"image swapped", func(w *world) { w.put(newest+".db", w.get(older+".db")) }, "the manifest says"},
		{"image missing", func(w *world) { w.remove(newest + ".db") }, "image is missing"},
		{"both swapped", func(w *world) { w.put(newest+".db", w.get(older+".db")); w.put(newest+".json", w.get(older+".json")) }, "is of seq 1, not 2"},
		{"another tenant's ledger", func(w *world) {
			w.put(newest+".db", other)
			w.rewrite(newest, func(m *copystore.Manifest) { m.Size, m.SHA256 = measured(other) })
		}, "not a ledger of this tenant"},
		{"manifest empty", func(w *world) { w.put(newest+".json", "") }, "is not JSON"},
		{"manifest torn", func(w *world) { w.put(newest+".json", w.get(newest + ".json")[:100]) }, "is not JSON"},
		{"manifest huge", func(w *world) { w.put(newest+".json", w.get(newest+".json")+strings.Repeat(" ", 1<<20)) }, "more than 16384 bytes"},
		{"manifest bit", func(w *world) {
			w.put(newest+".json", strings.Replace(w.get(newest+".json"), `"revision":200`, `"revision":201`, 1))
		}, "checksum"},
		{"manifest of the parent epoch", func(w *world) { w.put(newest+".json", w.get(ancestor+".json")) }, "is of epoch 1, not 2"},
		{"format", field(func(m *copystore.Manifest) { m.Format = 2 }), "has format 2"},
		{"key", field(func(m *copystore.Manifest) { m.Key = testKey(t, "b") }), "another tenant"},
		{"epoch", field(func(m *copystore.Manifest) { m.Epoch = 1 }), "is of epoch 1"},
		{"seq", field(func(m *copystore.Manifest) { m.Seq = 3 }), "is of seq 3"},
		{"revision", field(func(m *copystore.Manifest) { m.Revision = -1 }), "revision"},
		{"owner", field(func(m *copystore.Manifest) { m.Owner = "a b" }), "owner"},
		{"size", field(func(m *copystore.Manifest) { m.Size-- }), "longer than"},
		{"size of zero", field(func(m *copystore.Manifest) { m.Size = 0 }), "size 0"},
		{"hash", field(func(m *copystore.Manifest) { m.SHA256 = strings.Repeat("0", 64) }), "another SHA-256"},
		{"hash in capitals", field(func(m *copystore.Manifest) { m.SHA256 = strings.ToUpper(m.SHA256) }), "lowercase"},
		{"time", field(func(m *copystore.Manifest) { m.Time = copystore.Timestamp{} }), "time"},
		{"events", field(func(m *copystore.Manifest) { m.Events-- }), "holds 4 events, the manifest says 3"},
		{"negative events", field(func(m *copystore.Manifest) { m.Events = -1 }), "events"},
		{"parent", field(func(m *copystore.Manifest) { m.Parent = &copystore.Ref{Epoch: 2, Seq: 2} }), "not older"},
		{"parent of nothing", field(func(m *copystore.Manifest) { m.Parent = &copystore.Ref{} }), "start at 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := twoTenures(t)
			c.damage(w)
			o := w.acquire()
			must(t, o.open())
			if want := []string{"a1", "a2", "b1"}; !slices.Equal(o.content, want) {
				t.Errorf("restored %q, want %q", o.content, want)
			}
			s := o.restored.Skipped
			if len(s) != 1 || s[0].Epoch != 2 || s[0].Seq != 2 || !strings.Contains(s[0].Reason, c.reason) {
				t.Errorf("skipped %v, want %s for %q", s, newest, c.reason)
			}
		})
	}
}

// Every single bit of a manifest counts.
func TestEachByteOfAManifestCounts(t *testing.T) {
	w := twoTenures(t)
	good := w.get(newest + ".json")
	ref := copystore.Ref{Epoch: 2, Seq: 2}
	if _, err := copystore.ParseManifest([]byte(good), w.key, ref); err != nil {
		t.Fatal(err)
	}
	for at := range good {
		for bit := range 8 {
			b := []byte(good)
			b[at] ^= 1 << bit
			if _, err := copystore.ParseManifest(b, w.key, ref); err == nil {
				t.Errorf("bit %d of byte %d of %q does not count", bit, at, good)
			}
		}
	}
}

// The lineage goes back through the origins, past what does not verify.
func TestLineageGoesBackThroughOrigins(t *testing.T) {
	w := twoTenures(t)
	w.put(newest+".db", "x")
	w.remove(older + ".json")
	o := w.acquire()
	must(t, o.open())
	if want := []string{"a1", "a2"}; !slices.Equal(o.content, want) {
		t.Errorf("restored %q, want %q", o.content, want)
	}
	if from := o.restored.From(); from == nil || *from != (copystore.Ref{Epoch: 1, Seq: 2}) {
		t.Errorf("restored from %v", from)
	}
}

// CP-5: nothing trustworthy left means an error with reasons, never an empty
// ledger; and the live file is not touched.
func TestRestoreInvalid(t *testing.T) {
	images := func(w *world) {
		for _, name := range w.names() {
			if strings.HasSuffix(name, ".db") {
				w.put(name, "damaged")
			}
		}
	}
	cases := []struct {
		name    string
		damage  func(w *world)
		skipped []string // epoch, seq and a piece of the reason
	}{
		{"all images", images, []string{"2/2 image", "2/1 image", "1/2 image", "1/1 image"}},
		{"all copies gone", func(w *world) {
			for _, name := range w.names() {
				if strings.Contains(name, "snap-") {
					w.remove(name)
				}
			}
		}, []string{"1/2 manifest is missing"}},
		{"origin missing in the middle", func(w *world) { images(w); w.remove("e00000001/origin.json") },
			[]string{"2/2 image", "2/1 image", "1/2 image", "1/1 image", "1/0 origin is missing"}},
		{"newest origin broken", func(w *world) { images(w); w.put("e00000002/origin.json", "{}") },
			[]string{"2/2 image", "2/1 image", "2/0 origin has format 0"}},
		{"newest origin of another tenant", func(w *world) {
			images(w)
			w.put("e00000002/origin.json", encodeOrigin(t, testKey(t, "b"), 2, nil))
		}, []string{"2/2 image", "2/1 image", "2/0 origin: is of another tenant"}},
		{"origin that leads forward", func(w *world) {
			images(w)
			w.put("e00000002/origin.json", encodeOrigin(t, w.key, 2, &copystore.Ref{Epoch: 2, Seq: 1}))
		}, []string{"2/2 image", "2/1 image", "2/0 origin: names"}},
		{"only a broken origin", func(w *world) {
			for _, name := range w.names() {
				w.remove(name)
			}
			w.put("e00000002/origin.json", "")
		}, []string{"2/0 origin is not JSON"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := twoTenures(t)
			c.damage(w)
			o := w.acquire()
			must(t, os.MkdirAll(o.dir, 0o700), os.WriteFile(o.path(), []byte("live"), 0o600))
			var invalid *coord.RestoreInvalidError
			if err := o.restore(); !errors.As(err, &invalid) {
				t.Fatalf("restore gives %v", err)
			}
			if len(invalid.Skipped) != len(c.skipped) {
				t.Fatalf("skipped %v, want %q", invalid.Skipped, c.skipped)
			}
			for i, s := range invalid.Skipped {
				if got := fmt.Sprintf("%d/%d %s", s.Epoch, s.Seq, s.Reason); !strings.HasPrefix(got, c.skipped[i]) {
					t.Errorf("skipped %q, want %q", got, c.skipped[i])
				}
			}
			if b, err := os.ReadFile(o.path()); string(b) != "live" {
				t.Errorf("the live file is now %q (%v)", b, err)
			}
			if left, _ := filepath.Glob(filepath.Join(o.dir, ".*")); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}
