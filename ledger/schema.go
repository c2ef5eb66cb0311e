package ledger

import (
	"context"
	"fmt"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// ApplicationID is the application id in the header of every ledger, "lshd".
	ApplicationID = 0x6c736864
	// SchemaVersion is the user version of a ledger that this code makes, and the
	// newest that it understands.
	SchemaVersion = 1
)

// An object is one entry of the schema, as sqlite_schema keeps it.
type object struct {
	kind, name, table string
	sql               string
}

// objects returns the schema in the order of its creation. The fold's triggers come
// after its row; see createSQL.
func objects() []object {
	return []object{
		{"table", "events", "events", `CREATE TABLE events (
  seq INTEGER PRIMARY KEY CHECK (seq > 0),
  tenant_id TEXT NOT NULL,
  ts INTEGER NOT NULL,
  actor TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind <> ''),
  subject_id TEXT NOT NULL,
  payload TEXT NOT NULL CHECK (json_valid(payload)),
  idem_key TEXT CHECK (idem_key <> '')
) STRICT`},
		{"index", "events_idem_key", "events",
			`CREATE UNIQUE INDEX events_idem_key ON events (idem_key) WHERE idem_key IS NOT NULL`},
		{"table", "ledger_fold", "ledger_fold", `CREATE TABLE ledger_fold (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  organization TEXT NOT NULL,
  tenant_id TEXT NOT NULL,
  events INTEGER NOT NULL,
  last_seq INTEGER NOT NULL
) STRICT`},
		// REPLACE deletes what is in its way without asking a delete trigger, so an
		// existing key is refused before it comes to that. An existing seq is
		// refused when the fold is updated: it is never the next one.
		{"trigger", "events_insert", "events", `CREATE TRIGGER events_insert BEFORE INSERT ON events BEGIN
  SELECT RAISE(ABORT, 'an event carries the id of its tenant')
    WHERE NEW.tenant_id IS NOT (SELECT tenant_id FROM ledger_fold WHERE id = 1);
  SELECT RAISE(ABORT, 'the idempotency key exists')
    WHERE NEW.idem_key IS NOT NULL AND EXISTS (SELECT 1 FROM events WHERE idem_key = NEW.idem_key);
END`},
		{"trigger", "events_fold", "events", `CREATE TRIGGER events_fold AFTER INSERT ON events BEGIN
  UPDATE ledger_fold SET events = events + 1, last_seq = NEW.seq WHERE id = 1;
END`},
		{"trigger", "events_update", "events", `CREATE TRIGGER events_update BEFORE UPDATE ON events BEGIN
  SELECT RAISE(ABORT, 'events are never updated');
END`},
		{"trigger", "events_delete", "events", `CREATE TRIGGER events_delete BEFORE DELETE ON events BEGIN
  SELECT RAISE(ABORT, 'events are never deleted');
END`},
		{"trigger", "ledger_fold_insert", "ledger_fold", `CREATE TRIGGER ledger_fold_insert BEFORE INSERT ON ledger_fold BEGIN
  SELECT RAISE(ABORT, 'the fold has one row');
END`},
		// An event beyond the fold exists only while events_fold is about to
		// count it, so nobody else gets past this.
		{"trigger", "ledger_fold_update", "ledger_fold", `CREATE TRIGGER ledger_fold_update BEFORE UPDATE ON ledger_fold BEGIN
  SELECT RAISE(ABORT, 'the fold follows the events, which have no gaps')
    WHERE NEW.id IS NOT OLD.id OR NEW.organization IS NOT OLD.organization OR NEW.tenant_id IS NOT OLD.tenant_id
      OR NEW.events IS NOT OLD.events + 1 OR NEW.last_seq IS NOT OLD.last_seq + 1
      OR NOT EXISTS (SELECT 1 FROM events WHERE seq = NEW.last_seq);
END`},
		{"trigger", "ledger_fold_delete", "ledger_fold", `CREATE TRIGGER ledger_fold_delete BEFORE DELETE ON ledger_fold BEGIN
  SELECT RAISE(ABORT, 'the fold is never deleted');
END`},
	}
}

// createSQL is the whole schema of key's ledger as one script. A Key holds nothing
// that SQL would need to have quoted.
func createSQL(key coord.Key) string {
	var b strings.Builder
	b.WriteString("BEGIN IMMEDIATE;\n")
	fmt.Fprintf(&b, "PRAGMA application_id = %d;\nPRAGMA user_version = %d;\n", ApplicationID, SchemaVersion)
	for _, o := range objects() {
		if o.name == "ledger_fold_insert" {
			fmt.Fprintf(&b, "INSERT INTO ledger_fold VALUES (1, '%s', '%s', 0, 0);\n", key.Organization(), key.Tenant())
		}
		b.WriteString(o.sql + ";\n")
	}
	b.WriteString("COMMIT;")
	return b.String()
}

// Protected names the schema objects that a ledger consists of, for a guard that
// keeps consumers from dropping or altering them.
func Protected() []string {
	var names []string
	for _, o := range objects() {
		names = append(names, o.name)
	}
	return names
}

// Builtin is this package as a value: the schema that a replica uses for its
// tenants unless a service brings one of its own. Its methods are safe for
// concurrent use.
type Builtin struct{}

// Create is [Create].
func (Builtin) Create(ctx context.Context, path string, key coord.Key) error {
	return Create(ctx, path, key)
}

// Verify is [Verify]; it returns the number of events.
func (Builtin) Verify(ctx context.Context, path string, key coord.Key) (events int64, err error) {
	info, err := Verify(ctx, path, key)
	return info.Events, err
}

// Count is [Count].
func (Builtin) Count(ctx context.Context, path string) (events int64, err error) {
	return Count(ctx, path)
}

// Migrate changes nothing: there is one schema version.
func (Builtin) Migrate(context.Context, string, coord.Key) (changed bool, err error) {
	return false, nil
}

// Protected is [Protected].
func (Builtin) Protected() []string { return Protected() }
