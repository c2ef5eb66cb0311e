package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
)

// makeLedger returns the bytes of a ledger with two events, after running script on
// it without a guard.
func makeLedger(t testing.TB, key coord.Key, script string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made.db")
	if err := ledger.Create(bg, path, key); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, idem := range []string{"a", "b"} {
		if _, _, err := ledger.New(db, key).Append(bg, event(idem)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(script); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func verifyBytes(t testing.TB, content []byte) (ledger.Info, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "verify.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := ledger.Verify(bg, path, testKey(t))
	entries, dirErr := os.ReadDir(filepath.Dir(path))
	if dirErr != nil || len(entries) != 1 {
		t.Errorf("beside the file: %v %v", entries, dirErr)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(content) {
		t.Errorf("Verify changed the file (%v)", err)
	}
	return info, err
}

const keepEvents = "DROP TRIGGER events_delete; DELETE FROM events WHERE seq = 1; CREATE TRIGGER events_delete BEFORE DELETE ON events BEGIN\n  SELECT RAISE(ABORT, 'events are never deleted');\nEND;"

// LE-3, LE-4, trap 54: each kind of wrong file has a reason of its own.
func TestVerifyReasons(t *testing.T) {
	key := testKey(t)
	other, err := coord.NewKey("acme", "t-2f3897f6dc1f15c74b35ba8dfec966d9")
	if err != nil {
		t.Fatal(err)
	}
	otherOrg, err := coord.NewKey("umbrella", tenant)
	if err != nil {
		t.Fatal(err)
	}
	good := makeLedger(t, key, "")
	if info, err := verifyBytes(t, good); err != nil || info.Events != 2 || info.LastSeq != 2 || info.SchemaVersion != 1 {
		t.Fatalf("a good ledger: %+v, %v", info, err)
	}
	if _, err := verifyBytes(t, makeLedger(t, key, "CREATE TABLE own(a); CREATE INDEX events_kind ON events(kind)")); err != nil {
		t.Errorf("a ledger with objects of a service: %v", err)
	}
	flipped := append([]byte(nil), good...)
	for i := 4096 + 8; i < 4096+64; i++ {
		flipped[i] ^= 0xff
	}
	for reason, content := range map[string][]byte{
		"empty":                    {},
		"zeros":                    make([]byte, 8192),
		"not a SQLite database":    []byte("%PDF-1.7 " + strings.Repeat("x", 9000)),
		"cut short":                good[:50],
		"integrity check failed":   append(append([]byte(nil), good[:4096]...), make([]byte, len(good)-4096)...),
		"another application":      makeLedger(t, key, "PRAGMA application_id = 7"),
		"version 0 is unknown":     makeLedger(t, key, "PRAGMA user_version = 0"),
		"another tenant's ledger":  makeLedger(t, other, ""),
		"events_update is missing": makeLedger(t, key, "DROP TRIGGER events_update"),
		"events_update was altered": makeLedger(t, key,
			"DROP TRIGGER events_update; CREATE TRIGGER events_update BEFORE UPDATE ON events BEGIN SELECT 1; END"),
		"foreign trigger on events": makeLedger(t, key, "CREATE TRIGGER x AFTER INSERT ON events BEGIN SELECT 1; END"),
		"events was altered":        makeLedger(t, key, "ALTER TABLE events ADD COLUMN x TEXT"),
		"the fold says 2":           makeLedger(t, key, keepEvents),
	} {
		_, err := verifyBytes(t, content)
		wantCode(t, reason, err, coord.CodeLedgerInvalid)
		if err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("want %q, got %v", reason, err)
		}
	}
	if _, err := verifyBytes(t, makeLedger(t, otherOrg, "")); !errors.Is(err, coord.CodeLedgerInvalid) {
		t.Errorf("another organization's ledger: %v", err)
	}
	_, err = verifyBytes(t, makeLedger(t, key, "PRAGMA user_version = 2"))
	wantCode(t, "a newer schema", err, coord.CodeLedgerNewer)
	if _, err := verifyBytes(t, flipped); !errors.Is(err, coord.CodeLedgerInvalid) {
		t.Errorf("flipped bytes: %v", err)
	}
}

// A log that lies beside the file is none of it: it is neither read nor touched.
func TestVerifyLeavesNeighboursAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := ledger.Create(bg, path, testKey(t)); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-journal"} {
		if err := os.WriteFile(path+suffix, []byte("stale"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Verify(bg, path, testKey(t)); err != nil {
			t.Errorf("with a stale %s: %v", suffix, err)
		}
		if content, err := os.ReadFile(path + suffix); string(content) != "stale" {
			t.Errorf("%s is now %q (%v)", suffix, content, err)
		}
	}
}

func TestVerifyPassesOnWhatIsNotTheFile(t *testing.T) {
	if _, err := ledger.Verify(bg, filepath.Join(t.TempDir(), "missing"), testKey(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := ledger.Create(bg, path, testKey(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := ledger.Verify(ctx, path, testKey(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	_, err := ledger.Verify(bg, path, coord.Key{})
	wantCode(t, "zero key", err, coord.CodeIDInvalid)
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a?mode=memory#b%2e")
	if err := ledger.Create(bg, path, testKey(t)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("Create left %v (%v)", entries, err)
	}
	var schema ledger.Builtin
	if n, err := schema.Verify(bg, path, testKey(t)); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if err := schema.Create(bg, path, testKey(t)); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an existing file: %v", err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := ledger.Create(ctx, path+"2", testKey(t)); err == nil {
		t.Error("a cancelled Create succeeded")
	}
	if _, err := os.Stat(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed Create left its file: %v", err)
	}
}

// FuzzVerify: no content crashes Verify, hangs it, or is blamed on anything but the
// file.
func FuzzVerify(f *testing.F) {
	key := testKey(f)
	good := makeLedger(f, key, "")
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{})
	f.Add(make([]byte, 4096))
	f.Add([]byte("%PDF-1.7"))
	f.Add(makeLedger(f, key, "CREATE VIEW v AS WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r) SELECT i FROM r"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := verifyBytes(t, content); err != nil && !errors.Is(err, coord.CodeLedgerInvalid) && !errors.Is(err, coord.CodeLedgerNewer) {
			t.Errorf("%v", err)
		}
	})
}

// A file that SQLite cannot open, here for its long path, is not called damaged: a restore
// would pass over a good copy.
func TestVerifyCannotOpen(t *testing.T) {
	content := makeLedger(t, testKey(t), "SELECT 1")
	dir := t.TempDir()
	for range 4 {
		dir = filepath.Join(dir, strings.Repeat("d", 200))
	}
	path := filepath.Join(dir, "verify.db")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Verify(bg, path, testKey(t)); err == nil || errors.Is(err, coord.CodeLedgerInvalid) {
		t.Errorf("got %v, want an error that does not blame the file", err)
	}
}
