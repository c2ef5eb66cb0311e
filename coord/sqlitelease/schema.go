package sqlitelease

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// applicationID is in the header of every lease file: "lshl".
	applicationID = 0x6c73686c
	schemaVersion = 1
)

// Renewals beyond this many of one key are forgotten, the oldest first.
const keptRenewals = 100

// A table without a rowid has one thing to conflict on, its key, and the insert
// trigger refuses that: REPLACE would delete what is in its way without asking the
// delete trigger.
const schema = `
CREATE TABLE lease(
  key TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  boot TEXT NOT NULL,             -- whose clock until is read on
  until INTEGER NOT NULL,         -- ns
  ttl INTEGER NOT NULL,           -- ns, as it was granted last
  released INTEGER NOT NULL CHECK (released IN (0, 1)),
  forgotten INTEGER NOT NULL DEFAULT 0,
  address TEXT NOT NULL DEFAULT '',
  granted INTEGER NOT NULL,       -- ms on the calendar, of the grant
  at INTEGER NOT NULL             -- ms on the calendar, of the latest change
) STRICT, WITHOUT ROWID;

CREATE TABLE revision(
  id INTEGER PRIMARY KEY CHECK (id = 1),
  latest INTEGER NOT NULL
) STRICT;
INSERT INTO revision VALUES (1, 0);

CREATE TABLE audit(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL,
  op TEXT NOT NULL,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_key ON audit(key, op, id);

CREATE TRIGGER lease_insert BEFORE INSERT ON lease BEGIN
  SELECT RAISE(ABORT, 'a record is not replaced') WHERE EXISTS (SELECT 1 FROM lease WHERE key = NEW.key);
  SELECT RAISE(ABORT, 'the first epoch is 1') WHERE NEW.epoch <> 1 OR NEW.forgotten <> 0 OR NEW.released <> 0;
  SELECT RAISE(ABORT, 'a grant takes the next revision') WHERE NEW.revision <> (SELECT latest FROM revision) + 1;
END;
CREATE TRIGGER lease_update BEFORE UPDATE ON lease BEGIN
  SELECT RAISE(ABORT, 'a record keeps its key') WHERE NEW.key <> OLD.key;
  SELECT RAISE(ABORT, 'the epoch moves by exactly one') WHERE NEW.epoch NOT IN (OLD.epoch, OLD.epoch + 1);
  SELECT RAISE(ABORT, 'a grant takes the next revision')
    WHERE NEW.epoch <> OLD.epoch AND NEW.revision <> (SELECT latest FROM revision) + 1;
  SELECT RAISE(ABORT, 'a tenure keeps its owner and revision')
    WHERE NEW.epoch = OLD.epoch AND (NEW.owner <> OLD.owner OR NEW.revision <> OLD.revision);
  SELECT RAISE(ABORT, 'a released tenure stays released') WHERE NEW.epoch = OLD.epoch AND NEW.released < OLD.released;
  SELECT RAISE(ABORT, 'a grant is not released') WHERE NEW.epoch <> OLD.epoch AND NEW.released <> 0;
  SELECT RAISE(ABORT, 'the floor never moves back, nor past the epoch')
    WHERE NEW.forgotten < OLD.forgotten OR NEW.forgotten > OLD.epoch AND NEW.forgotten <> OLD.forgotten;
END;
CREATE TRIGGER lease_delete BEFORE DELETE ON lease BEGIN
  SELECT RAISE(ABORT, 'a record is not deleted');
END;

CREATE TRIGGER revision_insert BEFORE INSERT ON revision BEGIN
  SELECT RAISE(ABORT, 'there is one revision');
END;
CREATE TRIGGER revision_update BEFORE UPDATE ON revision BEGIN
  SELECT RAISE(ABORT, 'the revision only grows') WHERE NEW.id <> 1 OR NEW.latest <= OLD.latest;
END;
CREATE TRIGGER revision_delete BEFORE DELETE ON revision BEGIN
  SELECT RAISE(ABORT, 'there is one revision');
END;

CREATE TRIGGER lease_first AFTER INSERT ON lease BEGIN
  UPDATE revision SET latest = NEW.revision;
  INSERT INTO audit(key, op, owner, epoch, at) VALUES (NEW.key, 'acquire', NEW.owner, NEW.epoch, NEW.at);
END;
CREATE TRIGGER lease_granted AFTER UPDATE ON lease WHEN NEW.epoch <> OLD.epoch BEGIN
  UPDATE revision SET latest = NEW.revision;
  INSERT INTO audit(key, op, owner, epoch, at) VALUES (NEW.key, 'acquire', NEW.owner, NEW.epoch, NEW.at);
END;
CREATE TRIGGER lease_renewed AFTER UPDATE ON lease
WHEN NEW.epoch = OLD.epoch AND NEW.released = OLD.released AND NEW.forgotten = OLD.forgotten AND NEW.boot = OLD.boot BEGIN
  INSERT INTO audit(key, op, owner, epoch, at) VALUES (NEW.key, 'renew', NEW.owner, NEW.epoch, NEW.at);
END;
CREATE TRIGGER lease_released AFTER UPDATE ON lease WHEN NEW.epoch = OLD.epoch AND NEW.released > OLD.released BEGIN
  INSERT INTO audit(key, op, owner, epoch, at) VALUES (NEW.key, 'release', NEW.owner, NEW.epoch, NEW.at);
END;
CREATE TRIGGER lease_forgotten AFTER UPDATE ON lease WHEN NEW.forgotten > OLD.forgotten BEGIN
  INSERT INTO audit(key, op, owner, epoch, at) VALUES (NEW.key, 'forget', NEW.owner, NEW.epoch, NEW.at);
END;

CREATE TRIGGER audit_insert BEFORE INSERT ON audit BEGIN
  SELECT RAISE(ABORT, 'an entry is not replaced') WHERE EXISTS (SELECT 1 FROM audit WHERE id = NEW.id);
END;
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN
  SELECT RAISE(ABORT, 'an entry is not changed');
END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit WHEN OLD.op <> 'renew' BEGIN
  SELECT RAISE(ABORT, 'an entry is not deleted');
END;
CREATE TRIGGER audit_prune AFTER INSERT ON audit WHEN NEW.op = 'renew' BEGIN
  DELETE FROM audit WHERE key = NEW.key AND op = 'renew' AND id <= (
    SELECT id FROM audit WHERE key = NEW.key AND op = 'renew' ORDER BY id DESC LIMIT 1 OFFSET %d);
END;
`

// prepare creates the schema in an empty file and refuses a file of something else.
func prepare(ctx context.Context, tx *sql.Conn) error {
	var application, version, tables int
	if err := tx.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
		(SELECT count(*) FROM sqlite_schema)`).Scan(&application, &version, &tables); err != nil {
		return err
	}
	if application == 0 && version == 0 && tables == 0 {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(schema, keptRenewals)+
			fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, schemaVersion))
		return err
	}
	if application != applicationID || version != schemaVersion {
		return &coord.Error{
			Code: coord.CodeOptionsInvalid, Op: "open lease file",
			Detail: fmt.Sprintf("it has application id %#x and schema version %d, not %#x and %d", application, version, applicationID, schemaVersion),
			Hint:   "it belongs to something else, or to another version",
		}
	}
	return nil
}
