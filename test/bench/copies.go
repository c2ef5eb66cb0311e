package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
	"github.com/leaseholddb/leasehold/ledger"
)

const (
	largeLedger = 200 << 20
	padSQL      = `INSERT INTO pad(b) WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < ?) SELECT randomblob(4000) FROM r`
)

// A copyBench is a ledger of 200 MB with a lease, and a directory of copies on the
// same file system.
type copyBench struct {
	ctx       context.Context
	dir, path string
	key       coord.Key
	db        *fencing.Database
	lease     *fencing.Lease
	store     *dirstore.Store
	copies    *copystore.Copies
	publisher *copystore.Publisher
	epoch     coord.Epoch // of the last restore
}

func benchCopies(ctx context.Context, b *bench) (err error) {
	c, err := newCopyBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	err = b.ratio("copies: publish 200 MB to a directory", 1.15,
		side{"publish", c.publish}, side{"SQLite backup + SHA-256 + fsync", c.backupAlone})
	if err != nil {
		return err
	}
	err = b.ratio("copies: restore 200 MB, verified", 1.15,
		side{"restore", c.restore}, side{"copy + SHA-256 + fsync + integrity_check", c.copyAlone})
	if err != nil {
		return err
	}
	for _, f := range []func(*bench) error{c.unchanged, c.openSmall, c.writesBesideCopy, c.memory} {
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

func newCopyBench(ctx context.Context) (*copyBench, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	c := &copyBench{ctx: ctx, dir: dir, path: filepath.Join(dir, "ledger.db")}
	if c.key, err = coord.NewKey("bench", "t-00000000000000000000000000000001"); err != nil {
		return nil, err
	}
	if err := ledger.Create(ctx, c.path, c.key); err != nil {
		return nil, err
	}
	if c.lease, err = fencing.Acquire(ctx, memlease.New(coord.SystemClock()), c.key, "bench", fencing.LeaseOptions{TTL: coord.MaxTTL}); err != nil {
		return nil, err
	}
	if c.db, err = fencing.OpenDatabase(ctx, c.path, c.lease, nil); err != nil {
		return nil, err
	}
	if err := growLedger(ctx, c.db.DB(), largeLedger); err != nil {
		return nil, err
	}
	if c.store, err = dirstore.New(filepath.Join(dir, "copies"), dirstore.Options{}); err != nil {
		return nil, err
	}
	if c.copies, err = copystore.New(c.store, copystore.Options{}); err != nil {
		return nil, err
	}
	c.publisher, err = c.copies.Claim(ctx, c.lease.Grant(), nil)
	c.epoch = c.lease.Grant().Epoch
	return c, err
}

// growLedger makes the ledger about size bytes large.
func growLedger(ctx context.Context, db *sql.DB, size int) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS pad(b BLOB)"); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, padSQL, size/4096)
	return err
}

func (c *copyBench) close() error {
	return errors.Join(c.db.Close(), c.store.Close(), os.RemoveAll(c.dir))
}

func (c *copyBench) publishOnce() error {
	_, err := c.publisher.Publish(c.ctx, copystore.PublishRequest{
		Dir:   c.dir,
		Prove: c.lease.Check,
		TakeImage: func(ctx context.Context, path string) (int64, error) {
			if err := c.db.Image(ctx, path); err != nil {
				return 0, err
			}
			return ledger.Count(ctx, path)
		},
	})
	return err
}

func (c *copyBench) publish() (time.Duration, error) {
	start := time.Now()
	if err := c.publishOnce(); err != nil {
		return 0, err
	}
	took := time.Since(start)
	_, err := c.publisher.Retain(c.ctx, 1)
	return took, err
}

// backupAlone does with plain SQLite what an image in a file takes.
func (c *copyBench) backupAlone() (took time.Duration, err error) {
	path := filepath.Join(c.dir, "reference.db")
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	start := time.Now()
	if err := backup(c.ctx, c.path, path); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := io.CopyBuffer(sha256.New(), f, make([]byte, 256<<10)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

// backup copies a database with SQLite's backup API, in one step.
func backup(ctx context.Context, from, to string) error {
	return withConn(ctx, from, "mode=ro", func(src *sqlite3.SQLiteConn) error {
		return withConn(ctx, to, "mode=rwc&_journal_mode=OFF&_synchronous=OFF", func(dest *sqlite3.SQLiteConn) error {
			b, err := dest.Backup("main", src, "main")
			if err != nil {
				return err
			}
			_, err = b.Step(-1)
			return errors.Join(err, b.Finish())
		})
	})
}

func withConn(ctx context.Context, path, query string, f func(*sqlite3.SQLiteConn) error) error {
	uri, err := sqliteuri.File(path, query)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error { return f(driver.(*sqlite3.SQLiteConn)) })
}

func (c *copyBench) restore() (time.Duration, error) {
	c.epoch++ // nothing claims it, so every round restores the same copy
	grant := c.lease.Grant()
	grant.Epoch, grant.Revision = c.epoch, coord.Revision(c.epoch)+grant.Revision
	start := time.Now()
	_, err := c.copies.Restore(c.ctx, grant, copystore.RestoreRequest{
		Path: filepath.Join(c.dir, "restored", "ledger.db"),
		Verify: func(ctx context.Context, path string) (int64, error) {
			info, err := ledger.Verify(ctx, path, c.key)
			return info.Events, err
		},
		StillHeld: func() error { return nil },
		Prove:     func() error { return nil },
	})
	return time.Since(start), err
}

// copyAlone does with plain files and SQLite what restoring takes.
func (c *copyBench) copyAlone() (time.Duration, error) {
	last, _ := c.publisher.Last()
	from := filepath.Join(c.dir, "copies", filepath.FromSlash(c.key.String()), filepath.FromSlash(last.Ref().String())+".db")
	to := filepath.Join(c.dir, "reference-restored.db")
	defer os.Remove(to)
	start := time.Now()
	if err := copyAndHash(from, to); err != nil {
		return 0, err
	}
	uri, err := sqliteuri.File(to, "mode=ro&immutable=1")
	if err != nil {
		return 0, err
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRowContext(c.ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		return 0, fmt.Errorf("integrity_check: %s, %w", verdict, err)
	}
	return time.Since(start), nil
}

func copyAndHash(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.CopyBuffer(io.MultiWriter(out, sha256.New()), struct{ io.Reader }{in}, make([]byte, 256<<10)); err != nil {
		return err
	}
	return out.Sync()
}
