package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leaseholddb/leasehold/fencing/sqliteuri"

	"github.com/leaseholddb/leasehold/test/filelocks"
)

// openImage opens an image as a file that never changes.
func openImage(t *testing.T, path string) *sql.DB {
	t.Helper()
	uri, err := sqliteuri.File(path, "mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var ok string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		t.Fatalf("image: %s %v", ok, err)
	}
	return db
}

// CP-7, traps 45, 49: an image under constant writes ends, holds every write that
// was acknowledged before it began, is one moment, and fails no write.
func TestImageUnderConstantWrites(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), "CREATE TABLE pad(b BLOB)")
	mustExec(t, d.DB(), "INSERT INTO pad SELECT randomblob(4000) FROM (WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 10000) SELECT i FROM r)")
	var acknowledged atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	started := make(chan struct{})
	for w := range 2 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Two rows in one transaction: an image of one moment has both or none.
				if _, err := d.DB().Exec("INSERT INTO t(v) VALUES ('a'), ('b')"); err != nil {
					t.Errorf("write beside an image: %v", err)
					return
				}
				acknowledged.Add(2)
				if w == 0 && n == 5 {
					close(started)
				}
			}
		})
	}
	<-started
	for i := range 2 {
		least := acknowledged.Load()
		path := filepath.Join(t.TempDir(), fmt.Sprintf("image%d.db", i))
		if err := d.Image(bg, path); err != nil {
			t.Fatal(err)
		}
		if n := count(t, openImage(t, path), "t"); int64(n) < least || n%2 != 0 {
			t.Errorf("image %d has %d rows, %d were acknowledged before it", i, n, least)
		}
		if files := filesIn(t, filepath.Dir(path)); len(files) != 1 {
			t.Errorf("beside the image: %v", files)
		}
	}
	close(stop)
	wg.Wait()
}

// Row ids of a table without an integer primary key survive, and no gate is asked.
func TestImageIsPageExact(t *testing.T) {
	gate := newTestGate()
	d := openGuarded(t, gate, nil)
	mustExec(t, d.DB(), "CREATE TABLE loose(v TEXT)")
	mustExec(t, d.DB(), "INSERT INTO loose(rowid, v) VALUES (5, 'a'), (900, 'b')")
	mustExec(t, d.DB(), "DELETE FROM loose WHERE rowid = 5")
	gate.close()
	asked := gate.calls.Load()
	path := filepath.Join(t.TempDir(), "image.db")
	if err := d.Image(bg, path); err != nil {
		t.Fatal(err)
	}
	if n := gate.calls.Load() - asked; n != 0 {
		t.Errorf("the gate was asked %d times", n)
	}
	var rowid int
	if err := openImage(t, path).QueryRow("SELECT rowid FROM loose").Scan(&rowid); err != nil || rowid != 900 {
		t.Errorf("row id %d, %v", rowid, err)
	}
	if err := d.Image(bg, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an existing file: %v", err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := d.Image(ctx, path+"2"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Stat(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cancelled image left its file: %v", err)
	}
}

// Trap 47: nothing that is done to an open database drops a lock on its file.
func TestLocksSurvive(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), insertRow)
	before := filelocks.Of(t, d.Path())
	if before == "" {
		t.Fatal("an open database holds no lock")
	}
	if err := d.Image(bg, filepath.Join(t.TempDir(), "image.db")); err != nil {
		t.Fatal(err)
	}
	scoped := d.Scoped(nil)
	mustExec(t, scoped, insertRow)
	if err := scoped.Close(); err != nil {
		t.Fatal(err)
	}
	wantLocks(t, d.Path(), before)
}
