//go:build strace

package dirstore_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
)

const tracedDir = "LEASEHOLD_TRACED_DIR"

// Issue 5 g, trap 74: strace shows that a published copy reaches the disk in the
// order file, name, directory, and the image before its manifest.
func TestOrderAsTheKernelSeesIt(t *testing.T) {
	if dir := os.Getenv(tracedDir); dir != "" {
		publishOne(t, dir)
		return
	}
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-y", "-s", "300", "-e", "trace=fsync,fdatasync,linkat", "-o", log,
		os.Args[0], "-test.run", "^TestOrderAsTheKernelSeesIt$")
	cmd.Env = append(os.Environ(), tracedDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	trace, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	epoch := "/copies/acme/t-" + strings.Repeat("a", 32) + "/e00000001"
	rest := string(trace)
	for _, step := range []struct{ what, call, object string }{
		{"claim has its name", "linkat(", "origin.json"},
		{"claim on disk", "fsync(", epoch + ">"},
		{"image on disk", "fsync(", "/copies/.tmp/"},
		{"image has its name", "linkat(", "snap-000001.db"},
		{"directory on disk", "fsync(", epoch + ">"},
		{"manifest on disk", "fsync(", "/copies/.tmp/"},
		{"manifest has its name", "linkat(", "snap-000001.json"},
		{"directory on disk again", "fsync(", epoch + ">"},
	} {
		found := false
		for !found && rest != "" {
			var line string
			line, rest, _ = strings.Cut(rest, "\n")
			found = strings.Contains(line, step.call) && strings.Contains(line, step.object)
			if strings.Contains(line, "linkat(") && strings.Contains(line, ", \"snap-") && !found {
				t.Fatalf("before %q there is %s\n%s", step.what, line, trace)
			}
		}
		if !found {
			t.Fatalf("%q is missing or out of order in\n%s", step.what, trace)
		}
	}
	t.Logf("the kernel saw\n%s", trace)
}

func publishOne(t *testing.T, dir string) {
	store := open(t, filepath.Join(dir, "copies"))
	var _ copystore.FileStore = (*dirstore.Store)(nil)
	copies, err := copystore.New(store, copystore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := coord.ParseKey("acme/t-" + strings.Repeat("a", 32))
	if err != nil {
		t.Fatal(err)
	}
	grant := coord.Grant{Tenure: coord.Tenure{Key: key, Owner: "replica", Epoch: 1}, Revision: 1}
	publisher, err := copies.Claim(t.Context(), grant, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = publisher.Publish(t.Context(), copystore.PublishRequest{
		Dir:   dir,
		Prove: func() error { return nil },
		TakeImage: func(_ context.Context, path string) (int64, error) {
			return 1, os.WriteFile(path, []byte("image"), 0o600)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}
