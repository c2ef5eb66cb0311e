package copystore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

func (w *world) copies() *copystore.Copies {
	c, err := copystore.New(w.store, copystore.Options{})
	must(w.t, err)
	return c
}

func (w *world) extract(path string) copystore.ExtractRequest {
	return copystore.ExtractRequest{Path: path, Verify: func(_ context.Context, path string) (int64, error) { return verify(w.key, path) }}
}

// Issue 5, 7: the tree shows the lineage, what lies outside it, and what is wrong.
func TestTree(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1", "a2")
	zombie := w.tenure("b1")
	w.tenure("c1")
	// What a superseded owner uploads, whatever its process believes.
	w.put("e00000002/snap-000002.json", w.get("e00000002/snap-000001.json"))
	w.put("e00000002/snap-000003.db", "an image whose manifest never came")
	w.put("e00000002/strange", "x")
	w.remove("e00000001/snap-000001.db")
	w.put("e00000001/snap-000002.json", "{}")
	_ = zombie

	tree, err := w.copies().Tree(t.Context(), w.key, 0)
	must(t, err)
	var got []string
	for _, e := range tree.Epochs {
		from := "nothing"
		if e.Origin.From != nil {
			from = e.Origin.From.String()
		}
		got = append(got, e.Epoch.String()+" from "+from)
		for _, c := range e.Copies {
			line := c.Ref.String()
			if !c.InLineage {
				line += " outside"
			}
			got = append(got, line+" "+c.Problem)
		}
		for _, name := range e.Orphans {
			got = append(got, "orphan "+filepath.Base(name))
		}
	}
	want := []string{
		"e00000003 from e00000002/snap-000001", "e00000003/snap-000001 ",
		"e00000002 from e00000001/snap-000002",
		"e00000002/snap-000002 outside manifest: is of seq 1, not 2", "e00000002/snap-000001 ",
		"orphan snap-000003.db", "orphan strange",
		"e00000001 from nothing",
		"e00000001/snap-000002 manifest has format 0, this version reads only 1", "e00000001/snap-000001 image is missing",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tree is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	dead, err := w.copies().Tree(t.Context(), w.key, 3)
	must(t, err)
	for _, e := range dead.Epochs {
		if e.InLineage {
			t.Errorf("%s is at or below the floor and in the lineage", e.Epoch)
		}
	}
}

// Issue 5, 7: any copy is brought to a file without a lease, verified, and replaces
// nothing; what cannot be trusted is refused and leaves nothing.
func TestExtract(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1", "a2")
	dir := t.TempDir()
	path := filepath.Join(dir, "out.db")
	copies := w.copies()
	m, err := copies.Extract(t.Context(), w.key, copystore.Ref{Epoch: 1, Seq: 1}, w.extract(path))
	must(t, err)
	b, err := os.ReadFile(path)
	must(t, err)
	if string(b) != image(w.key, []string{"a1"}) || m.Events != 1 {
		t.Errorf("extracted %q of %d events", b, m.Events)
	}
	if _, err := copies.Extract(t.Context(), w.key, copystore.Ref{Epoch: 1, Seq: 2}, w.extract(path)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	w.put("e00000001/snap-000002.db", "something else of another size")
	other := filepath.Join(dir, "other.db")
	if _, err := copies.Extract(t.Context(), w.key, copystore.Ref{Epoch: 1, Seq: 2}, w.extract(other)); !errors.Is(err, coord.CodeRestoreInvalid) {
		t.Errorf("a bad copy: %v", err)
	}
	if _, err := copies.Verify(t.Context(), w.key, copystore.Ref{Epoch: 1, Seq: 9}, dir, w.extract("")); !errors.Is(err, coord.CodeRestoreInvalid) {
		t.Errorf("a copy that is not there: %v", err)
	}
	must(t, os.Remove(path))
	m, skipped, err := copies.ExtractNewest(t.Context(), w.key, 0, w.extract(path))
	if err != nil || m.Ref() != (copystore.Ref{Epoch: 1, Seq: 1}) || len(skipped) != 1 || skipped[0].Seq != 2 {
		t.Errorf("the newest is %v past %v (%v)", m.Ref(), skipped, err)
	}
	must(t, os.Remove(path))
	w.put("e00000001/snap-000001.db", "bad too")
	if _, _, err := copies.ExtractNewest(t.Context(), w.key, 0, w.extract(path)); !errors.Is(err, coord.CodeRestoreInvalid) {
		t.Errorf("without a good copy: %v", err)
	}
	if _, _, err := copies.ExtractNewest(t.Context(), testKey(t, "b"), 0, w.extract(path)); !errors.Is(err, coord.CodeTenantUnknown) {
		t.Errorf("of nobody: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestTenants(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	for _, name := range []string{"acme/strange/o", "acme/o", "acme-2/" + testKey(t, "c").Tenant() + "/o", testKey(t, "b").String() + "/e00000001/origin.json"} {
		must(t, w.store.Create(t.Context(), name, strings.NewReader("x"), 1))
	}
	got, err := w.copies().Tenants(t.Context(), "acme")
	if err != nil || !slices.Equal(got, []coord.Key{testKey(t, "a"), testKey(t, "b")}) {
		t.Errorf("the tenants are %v (%v)", got, err)
	}
	if _, err := w.copies().Tenants(t.Context(), "../x"); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("a bad organization gives %v", err)
	}
}
