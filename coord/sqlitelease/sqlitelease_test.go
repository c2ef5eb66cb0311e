package sqlitelease_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/sqlitelease"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(racerFile); path != "" {
		os.Exit(race(path))
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string, opts sqlitelease.Options) *sqlitelease.Store {
	t.Helper()
	s, err := sqlitelease.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func key(t *testing.T) coord.Key {
	t.Helper()
	k, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// LS-1 to LS-11 on a fake clock.
func TestConformance(t *testing.T) {
	clock := &coordtest.Clock{}
	s := open(t, filepath.Join(t.TempDir(), "leases.db"), sqlitelease.Options{Clock: clock, Boot: "test", Poll: time.Millisecond})
	coordtest.Test(t, coordtest.Subject{Store: s, Advance: clock.Advance, Rounds: 5})
}

// Two Stores on one file are two processes to SQLite.
func TestConformanceOfTwoStores(t *testing.T) {
	clock := &coordtest.Clock{}
	path := filepath.Join(t.TempDir(), "leases.db")
	opts := sqlitelease.Options{Clock: clock, Boot: "test", Poll: time.Millisecond}
	s := alternating{open(t, path, opts), open(t, path, opts), make(chan bool, 1)}
	s.turn <- false
	coordtest.Test(t, coordtest.Subject{Store: s, Advance: clock.Advance, Rounds: 3})
}

// alternating sends acquisitions to one Store and the next to the other.
type alternating struct {
	*sqlitelease.Store
	other *sqlitelease.Store
	turn  chan bool
}

func (a alternating) Acquire(ctx context.Context, k coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	turn := <-a.turn
	a.turn <- !turn
	if turn {
		return a.other.Acquire(ctx, k, owner, ttl)
	}
	return a.Store.Acquire(ctx, k, owner, ttl)
}

// LS-8: the schema refuses what a buggy caller must not be able to do.
func TestSchemaHoldsAgainstAnyCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path, sqlitelease.Options{Clock: &coordtest.Clock{}, Boot: "test"})
	for range 3 {
		g, err := s.Acquire(t.Context(), key(t), "a", time.Second)
		if err == nil && g.Epoch == 2 {
			_, err = s.MarkForgotten(t.Context(), g.Tenure)
		}
		if err := errors.Join(err, s.Release(t.Context(), g.Tenure)); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before := dump(t, db)
	for _, statement := range []string{
		"UPDATE lease SET epoch = epoch + 2, revision = revision + 1",
		"UPDATE lease SET epoch = epoch - 1",
		"UPDATE lease SET epoch = epoch + 1",
		"UPDATE lease SET forgotten = forgotten - 1",
		"UPDATE lease SET forgotten = epoch + 1",
		"UPDATE lease SET owner = 'b'",
		"UPDATE lease SET revision = revision + 1",
		"UPDATE lease SET released = 0",
		"UPDATE lease SET key = 'acme/t-00000000000000000000000000000002'",
		"UPDATE OR REPLACE lease SET epoch = 1",
		"DELETE FROM lease",
		"INSERT OR REPLACE INTO lease(key, owner, epoch, revision, boot, until, ttl, released, granted, at) SELECT key, 'b', 1, latest + 1, boot, until, ttl, 0, at, at FROM lease, revision",
		"REPLACE INTO lease SELECT * FROM lease",
		"INSERT INTO lease(key, owner, epoch, revision, boot, until, ttl, released, granted, at) SELECT 'acme/t-00000000000000000000000000000002', 'b', 2, latest + 1, boot, until, ttl, 0, at, at FROM lease, revision",
		"UPDATE revision SET latest = 0",
		"DELETE FROM revision",
		"REPLACE INTO revision VALUES (1, 0)",
		"DELETE FROM audit",
		"UPDATE audit SET owner = 'b'",
		"REPLACE INTO audit SELECT * FROM audit",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("accepted: %s", statement)
		}
	}
	if after := dump(t, db); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
}

func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	var lease, audit, revision string
	if err := db.QueryRowContext(t.Context(), `SELECT (SELECT group_concat(key || owner || epoch || revision || forgotten || released) FROM lease),
		(SELECT group_concat(op || owner || epoch) FROM audit), (SELECT latest FROM revision)`).Scan(&lease, &audit, &revision); err != nil {
		t.Fatal(err)
	}
	return lease + " " + audit + " " + revision
}

// After a reboot the clock starts again: a lease of the boot before is over one TTL
// after somebody looked, whatever its end says, and not before.
func TestLeaseOfAnotherBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	old := &coordtest.Clock{}
	old.Advance(time.Hour)
	before := open(t, path, sqlitelease.Options{Clock: old, Boot: "first"})
	g, err := before.Acquire(t.Context(), key(t), "a", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	clock := &coordtest.Clock{}
	after := open(t, path, sqlitelease.Options{Clock: clock, Boot: "second", Poll: time.Millisecond})
	clock.Advance(2 * time.Hour) // past the end, as the other clock has it
	if r, _, err := after.Read(t.Context(), key(t)); err != nil || !r.Held {
		t.Errorf("read %+v, %v", r, err)
	}
	refused := func() {
		t.Helper()
		if _, err := after.Acquire(t.Context(), key(t), "b", time.Second); !errors.Is(err, coord.CodeLeaseHeld) {
			t.Fatalf("got %v, want LEASE_HELD", err)
		}
	}
	refused()
	clock.Advance(999 * time.Millisecond)
	refused()
	clock.Advance(time.Millisecond)
	if err := after.WaitReleased(t.Context(), key(t)); err != nil {
		t.Fatal(err)
	}
	if next, err := after.Acquire(t.Context(), key(t), "b", time.Second); err != nil || next.Epoch != 2 {
		t.Fatalf("granted %+v, %v", next, err)
	}
	if _, err := before.Renew(t.Context(), g.Tenure, time.Second); !errors.Is(err, coord.CodeLeaseLost) {
		t.Errorf("the old holder got %v", err)
	}
}

// Waiting alone begins the time of a lease of another boot.
func TestWaitForLeaseOfAnotherBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	before := open(t, path, sqlitelease.Options{Clock: &coordtest.Clock{}, Boot: "first"})
	if _, err := before.Acquire(t.Context(), key(t), "a", time.Second); err != nil {
		t.Fatal(err)
	}
	after := open(t, path, sqlitelease.Options{Clock: coord.SystemClock(), Boot: "second", Poll: time.Millisecond})
	began := time.Now()
	if err := after.WaitReleased(t.Context(), key(t)); err != nil || time.Since(began) < time.Second {
		t.Errorf("waited for %v, %v", time.Since(began), err)
	}
}

// LS-9: a file that somebody else has locked is unavailable, and nothing changes.
func TestContention(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path, sqlitelease.Options{Clock: &coordtest.Clock{}, Boot: "test", BusyTimeout: 100 * time.Millisecond})
	g, err := s.Acquire(t.Context(), key(t), "a", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Renew(t.Context(), g.Tenure, time.Second)
	for what, err := range map[string]error{"renew": err, "release": s.Release(t.Context(), g.Tenure)} {
		if !errors.Is(err, coord.CodeLeaseStoreUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if r, ok, err := s.Read(t.Context(), key(t)); err != nil || !ok || !r.Held {
		t.Errorf("read beside a writer: %+v, %v, %v", r, ok, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), g.Tenure, time.Second); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite3", foreign)
	if err == nil {
		_, err = db.ExecContext(t.Context(), "CREATE TABLE t(x)")
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		path string
		opts sqlitelease.Options
	}{
		"foreign file":     {foreign, sqlitelease.Options{}},
		"clock alone":      {filepath.Join(dir, "a"), sqlitelease.Options{Clock: &coordtest.Clock{}}},
		"negative timeout": {filepath.Join(dir, "a"), sqlitelease.Options{BusyTimeout: -1}},
	} {
		if _, err := sqlitelease.Open(t.Context(), c.path, c.opts); !errors.Is(err, coord.CodeOptionsInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := sqlitelease.Open(t.Context(), filepath.Join(dir, "no", "dir"), sqlitelease.Options{}); !errors.Is(err, coord.CodeLeaseStoreUnavailable) {
		t.Errorf("no directory: %v", err)
	}
}

// The trail keeps everything but old renewals.
func TestAuditForgetsOldRenewals(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "leases.db"), sqlitelease.Options{Clock: &coordtest.Clock{}, Boot: "test"})
	g, err := s.Acquire(t.Context(), key(t), "a", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for range 150 {
		if _, err := s.Renew(t.Context(), g.Tenure, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	trail, err := s.Audit(t.Context(), key(t))
	if err != nil || len(trail) != 101 || trail[0].Op != coord.AuditAcquire {
		t.Errorf("%d entries, %v", len(trail), err)
	}
}

const racerFile = "LEASEHOLD_TEST_RACER_FILE"

// race is a process of its own; see coordtest.RaceProcesses.
func race(path string) int {
	s, err := sqlitelease.Open(context.Background(), path, sqlitelease.Options{BusyTimeout: time.Minute})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer s.Close()
	return coordtest.Racer(s)
}

// LS-11 with real processes.
func TestSixteenProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path, sqlitelease.Options{})
	for round := coord.Epoch(1); round <= 2; round++ {
		winner := coordtest.RaceProcesses(t, 16, racerFile+"="+path)
		r, ok, err := s.Read(t.Context(), key(t))
		if err != nil || !ok || r.Owner != winner || r.Epoch != round || !r.Held {
			t.Fatalf("round %d: %s won, the record is %+v, %v", round, winner, r, err)
		}
		if err := s.Release(t.Context(), coord.Tenure{Key: key(t), Owner: winner, Epoch: round}); err != nil {
			t.Fatal(err)
		}
	}
}
