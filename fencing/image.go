package fencing

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

const (
	imageStep   = 256 // pages copied between two looks at the context
	maxBusyStep = 64  // the same, while others commit
	minBusyStep = 8
	imagePause  = 5 * time.Millisecond // after a step that found something locked

	// What is copied while others commit comes in steps that take about this long, their
	// way to the disk included, because a commit may have to wait for one.
	imagePace  = time.Millisecond
	maxGiveWay = 50 * time.Millisecond
	// quietTime without a commit says that nobody else writes.
	quietTime = 100 * time.Millisecond
)

// Image writes a consistent, page-exact copy of the database to a new file at
// destPath. It holds every transaction that was acknowledged before the call, and no
// part of any other. Whoever needs the file to survive a loss of power brings it to disk,
// as copystore does with what it stores: here that would be done twice.
//
// Writers go on meanwhile; the image is of one moment, so constant writes do not
// make it start again. It needs no lease and passes no gate: the
// caller proves the lease when the image is used. Image fails if destPath exists, with
// [coord.CodeLedgerFull] if the disk has no room for it, and
// leaves no file behind when it fails. Closing the database ends it.
func (d *Database) Image(ctx context.Context, destPath string) error {
	if !d.hold() {
		return closedError("database")
	}
	defer d.held.Done()
	f, err := os.OpenFile(destPath, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return lacking(fmt.Errorf("image: %w", err))
	}
	if err = f.Close(); err == nil {
		err = d.copyTo(ctx, destPath)
	}
	if err != nil {
		return lacking(fmt.Errorf("image: %w", errors.Join(err, os.Remove(destPath))))
	}
	return nil
}

// copyTo copies over a connection of its own, so that it waits for no consumer.
func (d *Database) copyTo(ctx context.Context, destPath string) (err error) {
	src, err := d.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.disconnect(src)) }()
	// A journal would only serve to undo a copy that is removed if it fails.
	dsn, err := sqliteuri.File(destPath, "mode=rw&_journal_mode=OFF&_synchronous=OFF")
	if err != nil {
		return err
	}
	dest, err := openSQLite(dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dest.Close()) }()
	// The read transaction stays at one moment from its first read on. Without it
	// every commit between two steps would start the copy again.
	if _, err := src.ExecContext(context.Background(), "BEGIN", nil); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if _, err := queryText(src, "SELECT count(*) FROM sqlite_schema"); err != nil {
		return err
	}
	backup, err := dest.Backup("main", src, "main")
	if err != nil {
		return fmt.Errorf("begin copying: %w", err)
	}
	// A handle of our own beside SQLite's: closing it drops locks of a file that
	// nobody else has.
	written, err := os.Open(destPath)
	if err != nil {
		return errors.Join(err, backup.Finish())
	}
	defer written.Close()
	err = d.step(ctx, backup, written)
	return errors.Join(err, backup.Finish())
}

// step copies all pages. While others commit, it gives way: what it has written is
// brought to the disk bit by bit, since a commit would otherwise wait for all of
// it at once, and the disk and a processor are theirs for as long as a step took.
func (d *Database) step(ctx context.Context, backup *sqlite3.SQLiteBackup, written *os.File) error {
	pages := imageStep
	var latest time.Time // when others were last seen to have committed
	for remaining, commits := -1, d.Commits(); ; {
		began := time.Now()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.done:
			return closedError("database")
		default:
		}
		done, err := backup.Step(pages)
		if err != nil {
			return fmt.Errorf("copy pages: %w", err)
		}
		if done {
			return nil
		}
		if backup.Remaining() == remaining {
			pause(ctx, imagePause)
		}
		remaining = backup.Remaining()
		if now := d.Commits(); now != commits {
			commits, latest = now, began
		}
		if began.Sub(latest) > quietTime {
			pages = imageStep
			continue
		}
		if err := written.Sync(); err != nil {
			return err
		}
		took := time.Since(began)
		pages = nextBusyStep(pages, took)
		pause(ctx, min(took, maxGiveWay))
	}
}

// nextBusyStep sizes the step that follows one of pages that took so long.
func nextBusyStep(pages int, took time.Duration) int {
	switch {
	case took > imagePace:
		pages /= 2
	case took < imagePace/2:
		pages *= 2
	}
	return max(minBusyStep, min(pages, maxBusyStep))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// queryText returns the first column of the only row that text has, as text.
func queryText(c *sqlite3.SQLiteConn, text string) (string, error) {
	rows, err := c.QueryContext(context.Background(), text, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", text, err)
	}
	defer rows.Close()
	row := newRow(rows)
	if err := rows.Next(row); err != nil {
		return "", fmt.Errorf("%s: %w", text, err)
	}
	return fmt.Sprint(row[0]), nil
}

func newRow(rows driver.Rows) []driver.Value { return make([]driver.Value, len(rows.Columns())) }
