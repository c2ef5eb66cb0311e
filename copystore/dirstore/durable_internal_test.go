package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/copystore"
)

// recording returns a store whose syncs are written down, each with whether the
// object was visible when it happened.
func recording(t *testing.T) (*Store, *[]string) {
	t.Helper()
	dir := t.TempDir()
	s, err := New(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var syncs []string
	s.sync = func(f *os.File) error {
		rel, _ := filepath.Rel(dir, f.Name())
		what := rel
		if strings.HasPrefix(rel, tempDir+"/") {
			what = "temp"
		}
		if _, err := s.root.Lstat("a/b/c"); errors.Is(err, fs.ErrNotExist) {
			what += " without object"
		}
		syncs = append(syncs, what)
		return f.Sync()
	}
	return s, &syncs
}

func put(t *testing.T, s *Store, name string) error {
	t.Helper()
	return s.Create(t.Context(), name, strings.NewReader("x"), 1)
}

// Trap 74, CP-10: the file is on disk before it has its name, and the name and
// all directories above it before the object counts.
func TestOrderOfSyncs(t *testing.T) {
	s, syncs := recording(t)
	check := func(step string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if !slices.Equal(*syncs, want) {
			t.Errorf("%s synced %q, want %q", step, *syncs, want)
		}
		*syncs = nil
	}
	check("create", put(t, s, "a/b/c"), "temp without object", "a/b", "a", ".")
	lost := []string{"a/b"} // what is above is known
	if !settle(t, s) {
		lost = []string{"a/b", "a", "."}
	}
	*syncs = nil
	if err := put(t, s, "a/b/c"); !errors.Is(err, copystore.ErrExists) {
		t.Fatalf("second create gives %v", err)
	}
	check("a create that lost", nil, lost...)
	if err := s.Delete(t.Context(), "a/b/e"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	*syncs = nil
	neighbour := []string{"temp", "a"}
	if len(lost) > 1 {
		neighbour = append(neighbour, ".")
	}
	check("create a neighbour", put(t, s, "a/d"), neighbour...)
	check("delete", s.Delete(t.Context(), "a/b/c"), "a without object")
	check("delete again", s.Delete(t.Context(), "a/b/c"), "a without object")
	check("delete the last", s.Delete(t.Context(), "a/d"), ". without object")
}

// settle waits until the directories a and a/b can be told from those that may get their
// names later, and lets the store know them. It returns false on a file system where they
// never can.
func settle(t *testing.T, s *Store) bool {
	t.Helper()
	given := time.Now().Add(10 * time.Second) // a tick takes milliseconds
	for _, dir := range []string{"a", "a/b"} {
		for {
			_, certain, err := s.identityOf(dir)
			if err != nil {
				t.Fatal(err)
			}
			if certain {
				break
			}
			if time.Now().After(given) {
				return false
			}
		}
	}
	if err := put(t, s, "a/b/e"); err != nil {
		t.Fatal(err)
	}
	return true
}

// A directory that was removed, and made again by somebody who may not have come further,
// is not the one that is known.
func TestDirectoryMadeAnew(t *testing.T) {
	made := func(settled bool) {
		t.Helper()
		s, syncs := recording(t)
		if err := put(t, s, "a/b/d"); err != nil {
			t.Fatal(err)
		}
		if settled {
			settle(t, s)
		}
		if err := s.root.RemoveAll("a"); err != nil {
			t.Fatal(err)
		}
		if err := s.root.MkdirAll("a/b", 0o700); err != nil {
			t.Fatal(err)
		}
		*syncs = nil
		if err := put(t, s, "a/b/c"); err != nil {
			t.Fatal(err)
		}
		if want := []string{"temp without object", "a/b", "a", "."}; !slices.Equal(*syncs, want) {
			t.Errorf("synced %q, want %q", *syncs, want)
		}
	}
	made(true)
	for range 20 { // the same number again, within one tick of the clock
		made(false)
	}
}

func TestFailingSyncFailsTheCall(t *testing.T) {
	s, _ := recording(t)
	broken := errors.New("broken disk")
	for fail := range 4 {
		calls := 0
		s.sync = func(*os.File) error {
			if calls++; calls == fail+1 {
				return broken
			}
			return nil
		}
		name := "a/b/c" + string(rune('0'+fail))
		if err := put(t, s, name); !errors.Is(err, broken) {
			t.Errorf("create with sync %d failing gives %v", fail, err)
		}
	}
	s.sync = func(*os.File) error { return broken }
	if err := s.Delete(t.Context(), "a/b/c"); !errors.Is(err, broken) {
		t.Errorf("delete gives %v", err)
	}
}

// Trap 74: a file that is taken over is on disk before it has its name, replaces
// nothing, and leaves no second name in the store.
func TestOrderOfSyncsOfATakeOver(t *testing.T) {
	s, syncs := recording(t)
	file := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(file, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateFromFile(t.Context(), "a/b/c", file); err != nil {
		t.Fatal(err)
	}
	if want := []string{"temp without object", "a/b", "a", "."}; !slices.Equal(*syncs, want) {
		t.Errorf("synced %q, want %q", *syncs, want)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateFromFile(t.Context(), "a/b/c", other); !errors.Is(err, copystore.ErrExists) {
		t.Errorf("over an object: %v", err)
	}
	if err := s.CreateFromFile(t.Context(), "a/d", filepath.Dir(other)); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of a directory: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if b, err := s.root.ReadFile("a/b/c"); err != nil || string(b) != "image" {
		t.Errorf("the object is %q, %v", b, err)
	}
	if left, err := fs.ReadDir(s.root.FS(), tempDir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
