package fencing_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

const (
	insertPage = "INSERT INTO t(v) VALUES (randomblob(3000))"
	// Of a statement like this SQLite undoes no more than itself when the file is full.
	insertPages = "INSERT INTO t(v) SELECT randomblob(3000) FROM (VALUES (1), (2), (3))"
)

// A ledger that cannot grow says so, in whatever way it was asked to; the transaction
// is gone, reads and images go on, nothing is deleted, and it recovers.
func TestFullDatabase(t *testing.T) {
	d := openGuarded(t, newTestGate(), &fencing.DatabaseOptions{MaxBytes: 256 << 10})
	db := d.DB()
	mustExec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB NOT NULL)")
	fill := func(db execer, insert string) error {
		for range 1000 {
			if _, err := db.ExecContext(bg, insert); err != nil {
				return err
			}
		}
		return nil
	}
	wantCode(t, "autocommit", fill(db, insertPage), coord.CodeLedgerFull)
	before := count(t, db, "t")
	if before < 20 {
		t.Fatalf("full after %d rows", before)
	}
	for name, write := range map[string]func() error{
		"Exec":      func() error { return noResult(db.Exec(insertPage)) },
		"RETURNING": func() error { return scanErr(db.QueryRow(insertPage + " RETURNING id")) },
		"Stmt": func() error {
			s, err := db.Prepare(insertPage)
			if err != nil {
				return err
			}
			defer s.Close()
			return noResult(s.Exec())
		},
		"Tx": func() error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			mustExec(t, tx, "DELETE FROM t WHERE id < 3")
			err = fill(tx, insertPages)
			if err := noResult(tx.Exec("SELECT 1")); !errors.Is(err, fencing.ErrTxAborted) {
				t.Errorf("a statement after it: %v", err)
			}
			if err := tx.Commit(); !errors.Is(err, fencing.ErrTxAborted) {
				t.Errorf("Commit after it: %v", err)
			}
			return err
		},
		"transaction by text": func() error {
			return withConn(db, func(c *sql.Conn) error {
				mustExec(t, c, "BEGIN")
				mustExec(t, c, "DELETE FROM t WHERE id < 3")
				err := fill(c, insertPages)
				if err := noResult(c.ExecContext(bg, "COMMIT")); !errors.Is(err, fencing.ErrTxAborted) {
					t.Errorf("COMMIT after it: %v", err)
				}
				return err
			})
		},
	} {
		wantCode(t, name, write(), coord.CodeLedgerFull)
		if n := count(t, db, "t"); n != before {
			t.Errorf("%s: %d rows, there were %d", name, n, before)
		}
	}
	path := filepath.Join(t.TempDir(), "image.db")
	if err := d.Image(bg, path); err != nil {
		t.Fatal(err)
	}
	if n := count(t, openImage(t, path), "t"); n != before {
		t.Errorf("the image has %d rows, want %d", n, before)
	}
	mustExec(t, db, "DELETE FROM t WHERE id < 10")
	mustExec(t, db, insertPage)
}
