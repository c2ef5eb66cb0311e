package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// Info is what Verify learned about a file.
type Info struct {
	Fold
	SchemaVersion int
}

// Verify checks that the file at path is an intact ledger of key that this code
// understands: SQLite's full integrity check, the application id, the schema
// version, every object of the schema, the tenant, and the fold against the
// events. What is wrong is said in the detail of an error with
// [coord.CodeLedgerInvalid], a different one for each reason. A schema version that is
// newer than [SchemaVersion] is [coord.CodeLedgerNewer]: the file may well be intact, so
// an older copy must not be served in its place. An error of ctx, and one of reading the
// file at all, comes through as it is.
//
// The file must be complete by itself, as an image is, and nobody may have it open.
// It is only read, and nothing is created beside it. Its content is not trusted.
func Verify(ctx context.Context, path string, key coord.Key) (Info, error) {
	if err := key.Validate(); err != nil {
		return Info{}, err
	}
	if err := checkHeader(path, key); err != nil {
		return Info{}, err
	}
	db, err := openPlain(path, "mode=ro&immutable=1")
	if err != nil {
		return Info{}, fmt.Errorf("verify ledger: %w", err)
	}
	defer db.Close()
	v := verifier{ctx: ctx, db: db, key: key}
	for _, step := range []func() error{
		v.distrust, v.application, v.version, v.schema, v.integrity, v.identity, v.fold,
	} {
		if err := step(); err != nil {
			return Info{}, v.translate(err)
		}
	}
	return v.info, nil
}

const sqliteMagic = "SQLite format 3\x00"

// checkHeader tells apart what SQLite would all call "not a database", or take for
// an empty one.
func checkHeader(path string, key coord.Key) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("verify ledger: %w", err)
	}
	defer f.Close()
	head := make([]byte, 100)
	n, err := io.ReadFull(f, head)
	switch {
	case errors.Is(err, io.EOF):
		return invalidLedger(key, "the file is empty", nil)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("verify ledger: %w", err)
	case strings.Trim(string(head[:n]), "\x00") == "":
		return invalidLedger(key, "the file begins with zeros", nil)
	case !strings.HasPrefix(string(head[:n]), sqliteMagic):
		return invalidLedger(key, "the file is not a SQLite database", nil)
	case n < len(head):
		return invalidLedger(key, "the file is cut short", nil)
	}
	return nil
}

type verifier struct {
	ctx  context.Context
	db   *sql.DB
	key  coord.Key
	info Info
}

// translate turns what SQLite says about a damaged file into our code.
func (v *verifier) translate(err error) error {
	var e sqlite3.Error
	switch {
	case v.ctx.Err() != nil:
		return v.ctx.Err()
	case coord.CodeOf(err) != "":
		return err
	case !errors.As(err, &e):
		return invalidLedger(v.key, "the file does not hold what its schema says", err)
	case e.Code == sqlite3.ErrNotADB:
		return invalidLedger(v.key, "the file is not a SQLite database", err)
	case e.Code == sqlite3.ErrIoErr && e.ExtendedCode != sqlite3.ErrIoErrShortRead,
		e.Code == sqlite3.ErrNomem, e.Code == sqlite3.ErrCantOpen, e.Code == sqlite3.ErrFull:
		// Of memory, descriptors or disk this host has too little. That says nothing about the
		// file, and an older copy must not be taken for it.
		return fmt.Errorf("verify ledger: %w", err)
	}
	return invalidLedger(v.key, "the file is damaged", err)
}

// distrust keeps the file's own schema from running functions with side effects.
func (v *verifier) distrust() error {
	_, err := v.db.ExecContext(v.ctx, "PRAGMA trusted_schema = 0; PRAGMA cell_size_check = 1")
	return err
}

func (v *verifier) number(query string, args ...any) (n int64, err error) {
	err = v.db.QueryRowContext(v.ctx, query, args...).Scan(&n)
	return n, err
}

func (v *verifier) application() error {
	id, err := v.number("PRAGMA application_id")
	if err == nil && id != ApplicationID {
		return v.invalid("the file belongs to another application (application id %d)", id)
	}
	return err
}

func (v *verifier) version() error {
	version, err := v.number("PRAGMA user_version")
	switch {
	case err != nil:
		return err
	case version > SchemaVersion:
		return &coord.Error{
			Code: coord.CodeLedgerNewer, Op: "verify", Key: v.key,
			Detail: fmt.Sprintf("schema version %d is newer than %d, the newest that this code knows", version, SchemaVersion),
			Hint:   "open the tenant on a replica that runs the newer version",
		}
	case version < SchemaVersion:
		return v.invalid("schema version %d is unknown", version)
	}
	v.info.SchemaVersion = int(version)
	return nil
}

// schema compares the text of every object. Objects that a service added are none
// of its business, unless they are triggers on a table of the ledger.
func (v *verifier) schema() error {
	want := make(map[string]object)
	for _, o := range objects() {
		want[o.name] = o
	}
	rows, err := v.db.QueryContext(v.ctx, `SELECT type, name, tbl_name, coalesce(sql, '') FROM main.sqlite_schema`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var got object
		if err := rows.Scan(&got.kind, &got.name, &got.table, &got.sql); err != nil {
			return err
		}
		expected, ours := want[got.name]
		switch {
		case ours && got != expected:
			return v.invalid("schema object %s was altered", got.name)
		case !ours && got.kind == "trigger" && (got.table == "events" || got.table == "ledger_fold"):
			return v.invalid("there is a foreign trigger on %s", got.table)
		}
		delete(want, got.name)
	}
	for _, o := range objects() {
		if _, missing := want[o.name]; missing && rows.Err() == nil {
			return v.invalid("schema object %s is missing", o.name)
		}
	}
	return rows.Err()
}

func (v *verifier) integrity() error {
	var result string
	if err := v.db.QueryRowContext(v.ctx, "PRAGMA main.integrity_check(1)").Scan(&result); err != nil {
		return err
	}
	if result != "ok" {
		return v.invalid("the integrity check failed: %.200q", result)
	}
	return nil
}

func (v *verifier) identity() error {
	rows, err := v.number("SELECT count(*) FROM main.ledger_fold")
	if err != nil {
		return err
	}
	if rows != 1 {
		return v.invalid("the fold has %d rows", rows)
	}
	var organization, tenant string
	err = v.db.QueryRowContext(v.ctx, "SELECT organization, tenant_id FROM main.ledger_fold").Scan(&organization, &tenant)
	if err != nil {
		return err
	}
	if organization != v.key.Organization() || tenant != v.key.Tenant() {
		return v.invalid("the file is another tenant's ledger")
	}
	foreign, err := v.number("SELECT count(*) FROM main.events WHERE tenant_id <> ?", tenant)
	if err == nil && foreign != 0 {
		return v.invalid("%d events are another tenant's", foreign)
	}
	return err
}

func (v *verifier) fold() error {
	if err := v.db.QueryRowContext(v.ctx, foldSQL).Scan(&v.info.Events, &v.info.LastSeq); err != nil {
		return err
	}
	var actual Fold
	err := v.db.QueryRowContext(v.ctx, "SELECT count(*), coalesce(max(seq), 0) FROM main.events").Scan(&actual.Events, &actual.LastSeq)
	switch {
	case err != nil:
		return err
	case actual != v.info.Fold:
		return v.invalid("the fold says %d events up to %d, there are %d up to %d",
			v.info.Events, v.info.LastSeq, actual.Events, actual.LastSeq)
	case actual.Events != actual.LastSeq:
		return v.invalid("sequence numbers have gaps: %d events up to %d", actual.Events, actual.LastSeq)
	}
	return nil
}

func (v *verifier) invalid(format string, args ...any) error {
	return invalidLedger(v.key, fmt.Sprintf(format, args...), nil)
}

func invalidLedger(key coord.Key, why string, cause error) error {
	return &coord.Error{Code: coord.CodeLedgerInvalid, Op: "verify", Key: key, Detail: why, Err: cause}
}

func isConstraint(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrConstraint
}
