package fencing

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

func openForTest(t *testing.T) *Database {
	t.Helper()
	d, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), &hookedGate{}, &DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// openCount is how many descriptors of the file at path, under whatever name, this process has.
func openCount(t *testing.T, info os.FileInfo) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if now, err := os.Stat("/proc/self/fd/" + e.Name()); err == nil && os.SameFile(now, info) {
			n++
		}
	}
	return n
}

// A file that is put in the place of the ledger while a connection is being opened is
// noticed: what was opened is a ledger that no name leads to any more.
func TestFileIsReplacedWhileItIsOpened(t *testing.T) {
	for how, replace := range map[string]func(path string, content []byte) error{
		"deleted": func(path string, _ []byte) error { return os.Remove(path) },
		"replaced by a copy": func(path string, content []byte) error {
			return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, content, 0o600))
		},
		"emptied": func(path string, _ []byte) error { return os.Truncate(path, 0) },
	} {
		t.Run(how, func(t *testing.T) {
			d := openForTest(t)
			handle := d.Scoped(nil)
			if _, err := handle.Exec("CREATE TABLE t(v)"); err != nil {
				t.Fatal(err)
			}
			handle.Close()
			mustRestNow(t, d)
			info, err := os.Stat(d.path)
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(d.path)
			if err != nil {
				t.Fatal(err)
			}
			// Whoever opens the file has to wait for this one.
			uri, err := sqliteuri.File(d.path, "mode=rw&_locking_mode=EXCLUSIVE")
			if err != nil {
				t.Fatal(err)
			}
			first, err := openSQLite(uri)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := first.Exec("BEGIN EXCLUSIVE", nil); err != nil {
				t.Fatal(err)
			}
			before := openCount(t, info)
			if before == 0 {
				t.Fatal("no descriptor is seen: the test proves nothing")
			}
			result := make(chan error)
			go func() {
				c, err := d.connect()
				if err == nil {
					err = errors.Join(errors.New("it was opened"), d.disconnect(c))
				}
				result <- err
			}()
			for openCount(t, info) == before {
				time.Sleep(time.Millisecond)
			}
			if err := replace(d.path, content); err != nil {
				t.Error(err)
			}
			there, err := os.Stat(d.path)
			if how != "deleted" && err != nil {
				t.Error(err)
			}
			if err := first.Close(); err != nil {
				t.Error(err)
			}
			if err := <-result; !errors.Is(err, coord.CodeLedgerGone) {
				t.Errorf("connect: %v", err)
			}
			if now, err := os.Stat(d.path); err == nil && now.Size() != there.Size() {
				t.Errorf("the file has %d bytes, it had %d", now.Size(), there.Size())
			}
			if n := d.opened.Load(); n != 0 {
				t.Errorf("%d connections are counted", n)
			}
		})
	}
}

// mustRestNow is for a database whose handles are closed.
func mustRestNow(t *testing.T, d *Database) {
	t.Helper()
	_, err := d.Rest()
	resting, again := d.Rest()
	if err != nil || again != nil || !resting {
		t.Fatalf("two calls of Rest: %v, then %v, %v", err, resting, again)
	}
}

// A file without a page is not made a database, unless it is to be created.
func TestEmptiedFileIsNotMadeADatabase(t *testing.T) {
	d := openForTest(t)
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	uri, err := sqliteuri.File(empty, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	c, err := openSQLite(uri)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := d.intoWAL(c); !errors.Is(err, coord.CodeLedgerGone) || !strings.Contains(err.Error(), "emptied") {
		t.Errorf("intoWAL: %v", err)
	}
	if info, err := os.Stat(empty); err != nil || info.Size() != 0 {
		t.Errorf("the empty file is now %v (%v)", info, err)
	}
}

// A database whose file comes without a log gets one, at its opening and again after other
// hands took it away at rest.
func TestFileComesIntoWAL(t *testing.T) {
	d := openForTest(t)
	for _, when := range []string{"created", "at rest"} {
		handle := d.Scoped(nil)
		var mode string
		if err := handle.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("%s: the mode is %q (%v)", when, mode, err)
		}
		handle.Close()
		mustRestNow(t, d)
		uri, err := sqliteuri.File(d.path, "mode=rw&_journal_mode=DELETE")
		if err != nil {
			t.Fatal(err)
		}
		other, err := openSQLite(uri)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A copy that is being made holds a connection of its own, so the database is not at rest.
func TestRestCountsTheConnectionOfAnImage(t *testing.T) {
	d := openForTest(t)
	mustRestNow(t, d)
	c, err := d.connect() // as an image does
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if resting, err := d.Rest(); resting || err != nil {
			t.Errorf("at rest beside an image: %v, %v", resting, err)
		}
	}
	if s, err := d.Stats(); err != nil || s.Connections != 1 {
		t.Errorf("Stats: %+v, %v", s, err)
	}
	if err := d.disconnect(c); err != nil {
		t.Fatal(err)
	}
	mustRestNow(t, d)
}
