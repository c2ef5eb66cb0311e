package copystore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// kept writes a listing shortly: "1:o 1:2 3:1i" for origin of 1, copy 1:2, image
// 3:1 alone.
func (w *world) kept() string {
	var words []string
	names := w.names()
	for _, name := range names {
		dir, file, _ := strings.Cut(name, "/")
		epoch := strings.TrimLeft(dir, "e0")
		seq := strings.TrimLeft(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(file, "snap-"), ".db"), ".json"), "0")
		switch {
		case file == "origin.json":
			words = append(words, epoch+":o")
		case strings.HasSuffix(file, ".json"):
			words = append(words, epoch+":"+seq)
		case !slices.Contains(names, strings.TrimSuffix(name, ".db")+".json"):
			words = append(words, epoch+":"+seq+"i")
		}
	}
	return strings.Join(words, " ")
}

// CP-8: which objects stay.
func TestRetain(t *testing.T) {
	cases := []struct {
		name   string
		keep   int
		before func(w *world)
		want   string
	}{
		{"one", 1, func(*world) {}, "3:o 3:2"},
		{"zero counts as one", 0, func(*world) {}, "3:o 3:2"},
		{"own epoch", 2, func(*world) {}, "3:o 3:1 3:2"},
		{"one of the parent epoch", 3, func(*world) {}, "2:2 3:o 3:1 3:2"},
		{"two of the parent epoch", 4, func(*world) {}, "2:1 2:2 3:o 3:1 3:2"},
		{"one of the first epoch", 5, func(*world) {}, "1:2 2:o 2:1 2:2 3:o 3:1 3:2"},
		{"more than there are", 9, func(*world) {}, "1:1 1:2 2:o 2:1 2:2 3:o 3:1 3:2"},
		{"zombie's copies are not counted", 3, func(w *world) {
			w.put("e00000002/snap-000003.db", "late")
			w.put("e00000002/snap-000003.json", "late")
		}, "2:2 3:o 3:1 3:2"},
		{"orphans go and do not count", 2, func(w *world) { w.remove("e00000003/snap-000001.json"); w.put("e00000001/snap-000009.db", "x") }, "2:2 3:o 3:2"},
		{"a copy without image does not count", 2, func(w *world) { w.remove("e00000003/snap-000001.db") }, "2:2 3:o 3:2"},
		{"newer than the last commit", 1, func(w *world) { w.put("e00000003/snap-000003.db", "under way") }, "3:o 3:2 3:3i"},
		{"a copy that was not reported does not count", 2, func(w *world) {
			w.put("e00000003/snap-000003.db", "x")
			w.put("e00000003/snap-000003.json", "x")
		}, "3:o 3:1 3:2 3:3"},
		{"of a successor", 1, func(w *world) {
			w.put("e00000004/origin.json", "x")
			w.put("e00000004/snap-000001.db", "x")
		}, "3:o 3:2 4:o 4:1i"},
		{"broken beyond need", 2, func(w *world) { w.put("e00000002/origin.json", "x") }, "3:o 3:1 3:2"},
		{"broken before enough", 5, func(w *world) { w.put("e00000002/origin.json", "x") }, "1:o 1:1 1:2 2:o 2:1 2:2 3:o 3:1 3:2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.tenure("a1", "a2")
			w.tenure("b1", "b2")
			o := w.tenure("c1", "c2")
			c.before(w)
			must(t, o.retain(c.keep))
			if got := w.kept(); got != c.want {
				t.Errorf("kept %q, want %q", got, c.want)
			}
		})
	}
}

// CP-8: nothing is deleted before a copy of this tenure was reported.
func TestRetainWaitsForACommit(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1", "a2")
	o := w.acquire()
	must(t, o.open())
	before := w.kept()
	must(t, o.retain(1))
	if got := w.kept(); got != before {
		t.Errorf("kept %q of %q", got, before)
	}
}

// A tenant that was forgotten meanwhile is none of a zombie's business.
func TestRetainWithoutOwnOriginDeletesNothing(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	o := w.tenure("b1")
	w.remove("e00000002/origin.json")
	before := w.kept()
	if err := o.retain(1); !errors.Is(err, coord.CodeCopyConflict) {
		t.Errorf("retain gives %v", err)
	}
	if got := w.kept(); got != before {
		t.Errorf("kept %q of %q", got, before)
	}
}

// Issue 5, 5: what is being read is spared, and goes later.
func TestRetainSparesWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	o := w.tenure("a1", "a2", "a3")
	release := o.pub.Hold(copystore.Ref{Epoch: 1, Seq: 1})
	must(t, o.retain(1))
	if got := w.names(); !slices.Contains(got, "e00000001/snap-000001.db") || !slices.Contains(got, "e00000001/snap-000001.json") ||
		slices.Contains(got, "e00000001/snap-000002.db") {
		t.Errorf("while copy 1 is held there are %q", got)
	}
	release()
	must(t, o.retain(1))
	if got := w.names(); slices.Contains(got, "e00000001/snap-000001.db") {
		t.Errorf("after its release there are %q", got)
	}
}
