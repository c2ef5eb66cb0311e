package sqliteuri_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

// FuzzFile: whatever the path, the URI names that file and carries no parameter but
// those of the caller.
func FuzzFile(f *testing.F) {
	for _, path := range []string{"ledger.db", "/a/b.db", "a?mode=memory", "a#b", "d%2e%2e", "e%", "f g", "\xff", "k\nl", "..", "", "a\x00b", "file:x", "//host/x", "ü"} {
		f.Add(path)
	}
	const query = "mode=rw&_busy_timeout=5000"
	f.Fuzz(func(t *testing.T, path string) {
		uri, err := sqliteuri.File(path, query)
		if path == "" || strings.Contains(path, "\x00") {
			if !errors.Is(err, coord.CodeOptionsInvalid) {
				t.Errorf("%q: %v", path, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		name, parameters, _ := strings.Cut(uri, "?")
		escaped, isFile := strings.CutPrefix(name, "file:")
		if parameters != query || !isFile || strings.ContainsAny(escaped, "#?") || strings.HasPrefix(escaped, "//") {
			t.Errorf("%q became %q", path, uri)
		}
		want, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := url.PathUnescape(escaped); err != nil || back != want {
			t.Errorf("%q became %q, which is %q (%v)", path, uri, back, err)
		}
	})
}
