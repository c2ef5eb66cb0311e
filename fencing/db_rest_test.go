package fencing_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// descriptors returns what this process has open of the database at path.
func descriptors(t *testing.T, path string) (open []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, path) {
			open = append(open, target)
		}
	}
	return open
}

// mustRest lets the handle's pool give its connections back, which takes
// DefaultIdleTime, and the database go to rest.
func mustRest(t *testing.T, d *fencing.Database) {
	t.Helper()
	time.Sleep(2 * fencing.DefaultIdleTime)
	if _, err := d.Rest(); err != nil {
		t.Fatal(err)
	}
	if resting, err := d.Rest(); err != nil || !resting {
		t.Fatalf("two quiet calls of Rest give %v, %v", resting, err)
	}
}

// Issue 6, 5: a database at rest has nothing open, its log is merged, and the next
// call goes on as if nothing had been, on handles and statements made before (GU-4).
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newTestGate()
		d := openGuarded(t, gate, nil)
		mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
		mustExec(t, d.DB(), "CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES t)")
		mustExec(t, d.DB(), "PRAGMA foreign_keys = 0")
		stmt, err := d.DB().Prepare(insertRow)
		if err != nil {
			t.Fatal(err)
		}
		defer stmt.Close()
		if len(descriptors(t, d.Path())) == 0 {
			t.Fatal("an open database has no descriptor: the test sees nothing")
		}
		if resting, err := d.Rest(); err != nil || resting {
			t.Errorf("a database that was just used rests (%v)", err)
		}
		commits := d.Commits()
		mustRest(t, d)
		if open := descriptors(t, d.Path()); len(open) != 0 {
			t.Errorf("at rest, %v are open", open)
		}
		if names := filesIn(t, filepath.Dir(d.Path())); len(names) != 1 {
			t.Errorf("at rest there are %v", names)
		}
		if stats, err := d.Stats(); err != nil || stats.Connections != 0 || d.Commits() != commits {
			t.Errorf("at rest the figures are %+v (%v), %d commits before", stats, err, commits)
		}
		gate.close()
		if _, err := stmt.Exec(); err == nil {
			t.Error("waking needs no lease")
		}
		gate.open()
		if _, err := stmt.Exec(); err != nil {
			t.Errorf("a statement made before: %v", err)
		}
		mustExec(t, d.DB(), "INSERT INTO child(parent) VALUES (4711)") // the setting lasts
		if n := count(t, d.DB(), "t"); n != 1 || d.Commits() != commits+2 {
			t.Errorf("%d rows, %d commits after %d", n, d.Commits(), commits)
		}
	})
}

// What somebody holds keeps the database awake, however long it is left alone.
func TestRestLeavesWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openGuarded(t, newTestGate(), nil)
		mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
		scoped := d.Scoped(nil)
		defer scoped.Close()
		tx, err := scoped.Begin()
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, insertRow)
		for range 5 {
			time.Sleep(2 * fencing.DefaultIdleTime)
			if resting, err := d.Rest(); resting || err != nil {
				t.Fatalf("rests within a transaction (%v)", err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := count(t, d.DB(), "t"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// A ledger that other hands took away does not come back empty: calls say so, and so
// does Rest, and nothing is made or changed at the path.
func TestRestNoticesThatTheFileIsGone(t *testing.T) {
	for how, replace := range map[string]func(path string) error{
		"deleted":            os.Remove,
		"replaced by zeros":  func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
		"replaced by a copy": replaceByCopy,
		"made again":         makeAgain,
		"emptied":            func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := openGuarded(t, newTestGate(), nil)
				mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
				mustRest(t, d)
				if err := replace(d.Path()); err != nil {
					t.Fatal(err)
				}
				before := filesIn(t, filepath.Dir(d.Path()))
				_, err := d.DB().Exec(insertRow)
				wantCode(t, "Exec", err, coord.CodeLedgerGone)
				wantCode(t, "Image", d.Image(bg, d.Path()+".image"), coord.CodeLedgerGone)
				_, err = d.Rest()
				wantCode(t, "Rest", err, coord.CodeLedgerGone)
				if after := filesIn(t, filepath.Dir(d.Path())); len(after) != len(before) {
					t.Errorf("there were %v, now %v", before, after)
				}
			})
		})
	}
}

// replaceByCopy makes the copy while the file is still there, so that it has another number.
func replaceByCopy(path string) error {
	b, err := os.ReadFile(path)
	copied := path + ".copy"
	return errors.Join(err, os.WriteFile(copied, b, 0o600), os.Rename(copied, path))
}

// makeAgain puts a copy there that may have the number of the file that was deleted. The
// clock of a file system may stand still for some milliseconds, so it is made until its time
// is another; a file system that keeps no time of making cannot tell such files apart.
func makeAgain(path string) error {
	made := fencing.BirthTime(path)
	if made.IsZero() {
		return replaceByCopy(path)
	}
	b, err := os.ReadFile(path)
	for err == nil && fencing.BirthTime(path).Equal(made) {
		err = errors.Join(os.Remove(path), os.WriteFile(path, b, 0o600))
	}
	return err
}

// Going to rest and waking meet each other, images and writers at every moment: no
// call fails and no write is missing.
func TestRestUnderWork(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	first := d.Scoped(nil) // the long-lived handle would keep its connection for a while
	mustExec(t, first, "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	first.Close()
	const writers, rows = 3, 100
	var work, resting sync.WaitGroup
	pass := make(chan struct{})
	for range writers {
		work.Go(func() {
			for range rows {
				scoped := d.Scoped(nil)
				if _, err := scoped.Exec(insertRow); err != nil {
					t.Errorf("write: %v", err)
				}
				scoped.Close()
				<-pass // at a moment that chance chooses
			}
		})
	}
	work.Go(func() {
		for range 20 {
			image := filepath.Join(t.TempDir(), "image.db")
			if err := d.Image(bg, image); err != nil {
				t.Errorf("image: %v", err)
			}
		}
	})
	over, rests := make(chan struct{}), 0
	resting.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if rand.IntN(100) == 0 {
				select {
				case pass <- struct{}{}:
				default:
				}
			}
			at, err := d.Rest()
			if err != nil {
				t.Errorf("rest: %v", err)
			}
			if at {
				rests++
			}
		}
	})
	work.Wait()
	close(over)
	resting.Wait()
	if n := count(t, d.DB(), "t"); n != writers*rows {
		t.Errorf("%d rows of %d", n, writers*rows)
	}
	if rests < rows {
		t.Errorf("it was at rest %d times: the test proves little", rests)
	}
}
