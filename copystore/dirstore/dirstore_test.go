package dirstore_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/copystoretest"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *dirstore.Store {
	t.Helper()
	s, err := dirstore.New(dir, dirstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(s copystore.Store, name, body string) error {
	return s.Create(context.Background(), name, strings.NewReader(body), int64(len(body)))
}

// files lists every file and directory below dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); err == nil && rel != "." {
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	copystoretest.Test(t, copystoretest.Subject{Store: open(t, dir)})
	if left := files(t, dir); len(left) != 1 || left[0] != ".tmp" {
		t.Errorf("the suite left %q", left)
	}
}

// Two stores on one directory are what two processes are.
type alternating struct {
	copystore.Store
	other copystore.Store
}

func (a alternating) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if size%2 == 0 {
		return a.other.Create(ctx, name, r, size)
	}
	return a.Store.Create(ctx, name, r, size)
}

func TestConformanceOfTwoStoresOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	copystoretest.Test(t, copystoretest.Subject{Store: alternating{open(t, dir), open(t, dir)}, Prefix: "shared/"})
}

// Trap 26: a reader that fails leaves neither an object nor a temporary file.
func TestFailedCreateLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	broken := errors.New("broken")
	cancelled, cancel := context.WithCancel(t.Context())
	cases := map[string]func() error{
		"failing reader": func() error {
			return s.Create(t.Context(), "a/b", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), 100)
		},
		"short reader": func() error { return s.Create(t.Context(), "a/b", strings.NewReader("half"), 100) },
		"long reader":  func() error { return s.Create(t.Context(), "a/b", strings.NewReader("half"), 1) },
		"cancelled": func() error {
			r := io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { cancel(); return 0, nil }), strings.NewReader("rest"))
			return s.Create(cancelled, "a/b", r, 8)
		},
	}
	for name, create := range cases {
		t.Run(name, func(t *testing.T) {
			if err := create(); err == nil {
				t.Error("create succeeded")
			}
			if left := files(t, dir); len(left) != 1 {
				t.Errorf("left %q", left)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestNewSweepsOnlyOldTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := create(s, "a/b", "object"); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * dirstore.DefaultSweepAge)
	for name, at := range map[string]time.Time{".tmp/old": old, ".tmp/new": time.Now(), "a/b": old} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("object"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	if got := strings.Join(files(t, dir), " "); got != ".tmp .tmp/new a a/b" {
		t.Errorf("after New there are %q", got)
	}
}

func TestSymbolicLinksDoNotLeadOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	s := open(t, dir)
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"out": outside, "file": secret} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(s, "out/new", "x"); err == nil {
		t.Error("created an object through a link")
	}
	for _, name := range []string{"out/secret", "file"} {
		if r, err := s.Open(t.Context(), name); err == nil {
			r.Close()
			t.Errorf("opened %s through a link", name)
		}
	}
	for o, err := range s.List(t.Context(), "") {
		t.Errorf("listed %v, %v", o, err)
	}
	if err := s.Delete(t.Context(), "out/secret"); err == nil {
		t.Error("deleted through a link")
	}
	if got := files(t, outside); len(got) != 1 {
		t.Errorf("outside there are %q", got)
	}
}

func TestStrangeFilesAreNoObjects(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, name := range []string{"Upper", "with space", ".hidden", "a.tmp~"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for o, err := range s.List(t.Context(), "") {
		t.Errorf("listed %v, %v", o, err)
	}
}

func TestOptionsAreValidated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := dirstore.New(dir, dirstore.Options{SweepAge: -1}); !errors.Is(err, coord.CodeOptionsInvalid) {
		t.Errorf("New gives %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("New made the directory all the same")
	}
}
