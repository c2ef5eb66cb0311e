package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

// Create makes an empty ledger for key in a new file at path, and returns when it
// is on disk, directory entry included. It fails if the file exists, and removes
// what it made when it fails later.
func Create(ctx context.Context, path string, key coord.Key) (err error) {
	if err := key.Validate(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create ledger: %w", err)
	}
	if err = f.Close(); err == nil {
		err = writeSchema(ctx, path, key)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return noRoom(key, fmt.Errorf("create ledger: %w", errors.Join(err, remove(path))))
	}
	return nil
}

// noRoom gives a failure for want of room on the disk its code.
func noRoom(key coord.Key, err error) error {
	var e sqlite3.Error
	if errors.As(err, &e) && (e.Code == sqlite3.ErrFull || e.SystemErrno == syscall.ENOSPC) {
		return &coord.Error{Code: coord.CodeLedgerFull, Op: "create", Key: key, Err: err, Hint: "free space on the disk"}
	}
	return err
}

func writeSchema(ctx context.Context, path string, key coord.Key) (err error) {
	db, err := openPlain(path, "mode=rw&_journal_mode=WAL&_synchronous=FULL")
	if err != nil {
		return err
	}
	// The last connection to close moves the log into the file.
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, createSQL(key))
	return err
}

// openPlain opens one unguarded connection on a file that nobody has open.
func openPlain(path, query string) (*sql.DB, error) {
	uri, err := sqliteuri.File(path, query)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Base(path), err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func remove(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
