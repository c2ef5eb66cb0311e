package ledger_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

const tenant = "t-860cead4b9aab8577b5f03fdeff1ead1"

func testKey(t testing.TB) coord.Key {
	t.Helper()
	key, err := coord.NewKey("acme", tenant)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

type openGate struct{}

func (openGate) Check() error { return nil }

// openLedger makes a ledger and opens it behind a guard that is always open.
func openLedger(t testing.TB) (*ledger.Ledger, *fencing.Database) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := ledger.Create(bg, path, testKey(t)); err != nil {
		t.Fatal(err)
	}
	d, err := fencing.OpenDatabase(bg, path, openGate{}, &fencing.DatabaseOptions{Protected: ledger.Protected()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return ledger.New(d.DB(), testKey(t)), d
}

func event(idem string) ledger.Event {
	return ledger.Event{Actor: "ana", Kind: "flight.recorded", SubjectID: "LAX", Payload: json.RawMessage(`{"delay": -19}`), IdemKey: idem}
}

func wantCode(t testing.TB, what string, err error, code coord.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

func TestAppendAndRead(t *testing.T) {
	l, _ := openLedger(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 8_900_000, time.UTC)
	first := event("k1")
	first.Time = at
	stored, duplicate, err := l.Append(bg, first)
	if err != nil || duplicate || stored.Seq != 1 || stored.TenantID != tenant {
		t.Fatalf("%+v, %v, %v", stored, duplicate, err)
	}
	if !stored.Time.Equal(at.Truncate(time.Millisecond)) || string(stored.Payload) != `{"delay":-19}` {
		t.Errorf("stored %v %s", stored.Time, stored.Payload)
	}
	if _, _, err := l.Append(bg, ledger.Event{Kind: "bare"}); err != nil {
		t.Fatal(err)
	}
	events, err := l.Read(bg, 0, 0)
	if err != nil || len(events) != 2 || fmt.Sprint(events[0]) != fmt.Sprint(stored) || string(events[1].Payload) != "null" {
		t.Errorf("Read: %+v, %v", events, err)
	}
	if events, err = l.Read(bg, 1, 10); err != nil || len(events) != 1 || events[0].Seq != 2 {
		t.Errorf("Read after 1: %+v, %v", events, err)
	}
	n := int64(0)
	for e, err := range l.Events(bg, 0) {
		if n++; err != nil || e.Seq != n {
			t.Errorf("Events: %+v, %v", e, err)
		}
	}
	for range l.Events(bg, 0) {
		break // must give its connection back
	}
	if f, err := l.Fold(bg); err != nil || f != (ledger.Fold{Events: 2, LastSeq: 2}) {
		t.Errorf("Fold: %+v, %v", f, err)
	}
}

// LE-1.
func TestAppendIsIdempotent(t *testing.T) {
	l, d := openLedger(t)
	first, _, err := l.Append(bg, event("k"))
	if err != nil {
		t.Fatal(err)
	}
	again, duplicate, err := l.Append(bg, event("k"))
	if err != nil || !duplicate || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("repeated: %+v, %v, %v", again, duplicate, err)
	}
	for name, change := range map[string]func(*ledger.Event){
		"actor":   func(e *ledger.Event) { e.Actor = "bob" },
		"kind":    func(e *ledger.Event) { e.Kind = "other" },
		"subject": func(e *ledger.Event) { e.SubjectID = "SFO" },
		"payload": func(e *ledger.Event) { e.Payload = json.RawMessage(`{"delay":0}`) },
	} {
		e := event("k")
		change(&e)
		_, _, err := l.Append(bg, e)
		wantCode(t, "another "+name, err, coord.CodeIdempotencyConflict)
	}
	tx, err := d.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.AppendTx(bg, tx, event("in transaction")); err != nil {
		t.Error(err)
	}
	if again, duplicate, err := l.AppendTx(bg, tx, event("k")); err != nil || !duplicate || again.Seq != 1 {
		t.Errorf("repeated in a transaction: %+v, %v, %v", again, duplicate, err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	if f, err := l.Fold(bg); err != nil || f.Events != 2 {
		t.Errorf("%+v, %v", f, err)
	}
}

// Trap 65: one effect of 20 at once, and all get the same answer.
func TestAppendConcurrently(t *testing.T) {
	l, _ := openLedger(t)
	var wg sync.WaitGroup
	outcomes := make(chan bool, 20)
	for range 20 {
		wg.Go(func() {
			e, duplicate, err := l.Append(bg, event("same"))
			if err != nil || e.Seq != 1 {
				t.Errorf("%+v, %v", e, err)
			}
			outcomes <- duplicate
		})
	}
	wg.Wait()
	close(outcomes)
	fresh := 0
	for duplicate := range outcomes {
		if !duplicate {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d appends say they were the first", fresh)
	}
}

func TestAppendBatch(t *testing.T) {
	l, _ := openLedger(t)
	all, err := l.AppendBatch(bg, []ledger.Event{event("a"), event(""), event("a")})
	if err != nil || len(all) != 3 || all[0].Duplicate || !all[2].Duplicate || all[2].Event.Seq != 1 || all[1].Event.Seq != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	conflict := event("a")
	conflict.Kind = "other"
	_, err = l.AppendBatch(bg, []ledger.Event{event("b"), conflict})
	wantCode(t, "batch with a conflict", err, coord.CodeIdempotencyConflict)
	if f, err := l.Fold(bg); err != nil || f.Events != 2 {
		t.Errorf("a batch that failed left something: %+v, %v", f, err)
	}
}

func TestAppendRefusesBadEvents(t *testing.T) {
	l, _ := openLedger(t)
	long := strings.Repeat("x", ledger.MaxText+1)
	for name, e := range map[string]ledger.Event{
		"no kind":       {},
		"long kind":     {Kind: long},
		"long actor":    {Kind: "k", Actor: long},
		"long subject":  {Kind: "k", SubjectID: long},
		"long key":      {Kind: "k", IdemKey: long},
		"NUL":           {Kind: "k", SubjectID: "a\x00b"},
		"not UTF-8":     {Kind: "k\xff"},
		"not JSON":      {Kind: "k", Payload: json.RawMessage(`{"a":`)},
		"two values":    {Kind: "k", Payload: json.RawMessage(`1 2`)},
		"payload bytes": {Kind: "k", Payload: json.RawMessage("\"\xff\"")},
	} {
		_, _, err := l.Append(bg, e)
		wantCode(t, name, err, ledger.CodeEventInvalid)
	}
	if f, err := l.Fold(bg); err != nil || f.Events != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// LE-2: whatever plain SQL does, the invariants hold. The guard does not help here:
// the file is opened without one.
func TestInvariantsHoldForPlainSQL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := ledger.Create(bg, path, testKey(t)); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	row := func(tenant, idem string) string {
		return fmt.Sprintf("('%s', 1, 'a', 'k', 's', '{}', %s)", tenant, idem)
	}
	const cols = " INTO events (tenant_id, ts, actor, kind, subject_id, payload, idem_key) VALUES "
	for _, query := range []string{
		"INSERT" + cols + row(tenant, "NULL"),
		"INSERT" + cols + row(tenant, "'one'") + ", " + row(tenant, "'two'"),
		"INSERT INTO events SELECT 4, tenant_id, ts, actor, kind, subject_id, payload, 'four' FROM events WHERE seq = 1",
	} {
		if _, err := db.Exec(query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	const before = "4 events up to 4"
	for _, query := range []string{
		"UPDATE events SET kind = 'x'", "UPDATE events SET seq = 99 WHERE seq = 4", "UPDATE OR REPLACE events SET seq = 1 WHERE seq = 2",
		"DELETE FROM events", "DELETE FROM events WHERE seq = 4",
		"INSERT" + cols + row("t-00000000000000000000000000000000", "NULL"),
		"INSERT" + cols + row(tenant, "'new'") + ", " + row("t-00000000000000000000000000000000", "NULL"),
		"INSERT OR REPLACE" + cols + row(tenant, "'one'"), "REPLACE" + cols + row(tenant, "'four'"),
		"INSERT OR IGNORE" + cols + row(tenant, "'new'") + ", " + row(tenant, "'one'"),
		"INSERT OR FAIL" + cols + row(tenant, "'new'") + ", " + row(tenant, "'one'"),
		"REPLACE INTO events SELECT * FROM events WHERE seq = 4", "REPLACE INTO events SELECT * FROM events WHERE seq = 1",
		"REPLACE INTO events SELECT 4, tenant_id, ts, actor, 'x', subject_id, payload, NULL FROM events WHERE seq = 4",
		"INSERT INTO events SELECT 9, tenant_id, ts, actor, kind, subject_id, payload, NULL FROM events WHERE seq = 1",
		"INSERT INTO events SELECT -1, tenant_id, ts, actor, kind, subject_id, payload, NULL FROM events WHERE seq = 1",
		"INSERT" + cols + row(tenant, "'one'") + " ON CONFLICT (idem_key) WHERE idem_key IS NOT NULL DO UPDATE SET kind = 'x'",
		"INSERT INTO events (tenant_id, ts, actor, kind, subject_id, payload) VALUES ('" + tenant + "', 1, 'a', 'k', 's', '{')",
		"INSERT INTO events (tenant_id, ts, actor, kind, subject_id, payload) VALUES ('" + tenant + "', 'x', 'a', 'k', 's', '{}')",
		"UPDATE ledger_fold SET events = 5, last_seq = 5", "UPDATE ledger_fold SET events = 3", "UPDATE ledger_fold SET tenant_id = 'x'",
		"DELETE FROM ledger_fold", "INSERT INTO ledger_fold VALUES (1, 'acme', 'x', 0, 0)", "REPLACE INTO ledger_fold VALUES (1, 'acme', 'x', 0, 0)",
		"UPDATE OR REPLACE ledger_fold SET id = 2",
	} {
		if _, err := db.Exec(query); err == nil {
			t.Errorf("%s succeeded", query)
		}
		var after string
		err := db.QueryRow("SELECT (SELECT count(*) FROM events WHERE kind = 'k') || ' events up to ' || last_seq FROM ledger_fold WHERE events = last_seq").Scan(&after)
		if err != nil || after != before {
			t.Fatalf("after %s: %s (%v)", query, after, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := ledger.Verify(bg, path, testKey(t)); err != nil || info.Events != 4 {
		t.Errorf("%+v, %v", info, err)
	}
}

// What a consumer of the guarded database may not take away.
func TestSchemaIsProtected(t *testing.T) {
	_, d := openLedger(t)
	for _, query := range []string{"DROP TABLE events", "DROP TRIGGER events_delete", "ALTER TABLE events ADD COLUMN x", "DROP INDEX events_idem_key",
		"CREATE TRIGGER x BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END"} {
		_, err := d.DB().Exec(query)
		wantCode(t, query, err, coord.CodeSQLRefused)
	}
}

// The guard's tests show that a value of the greatest size works.
func TestLargePayload(t *testing.T) {
	l, _ := openLedger(t)
	payload := `"` + strings.Repeat("x", 4<<20) + `"`
	if _, _, err := l.Append(bg, ledger.Event{Kind: "k", Payload: json.RawMessage(payload)}); err != nil {
		t.Fatal(err)
	}
	if events, err := l.Read(bg, 0, 1); err != nil || string(events[0].Payload) != payload {
		t.Errorf("a payload of %d bytes did not survive: %v", len(payload), err)
	}
	_, _, err := l.Append(bg, ledger.Event{Kind: "k", Payload: make(json.RawMessage, ledger.MaxPayload+1)})
	wantCode(t, "a larger one", err, ledger.CodeEventInvalid)
}
