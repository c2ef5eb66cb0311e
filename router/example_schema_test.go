package router_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	_ "github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/copystore/memstore"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
	"github.com/leaseholddb/leasehold/router"
)

// rooms is a service's own schema: a table of bookings for one tenant. Its version
// is in the file's header.
type rooms struct {
	version  int
	distrust error // what Verify says of every file
}

// on runs f on an unguarded connection to the file.
func (rooms) on(path string, f func(db *sql.DB) error) error {
	uri, err := sqliteuri.File(path, "mode=rwc")
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

func (s rooms) Create(ctx context.Context, path string, key coord.Key) error {
	return s.on(path, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE owner(tenant TEXT); INSERT INTO owner VALUES ('%s');
			CREATE TABLE bookings(room TEXT NOT NULL); PRAGMA user_version = %d`, key.Tenant(), s.version))
		return err
	})
}

func (s rooms) Verify(ctx context.Context, path string, key coord.Key) (events int64, err error) {
	if s.distrust != nil {
		return 0, s.distrust
	}
	err = s.on(path, func(db *sql.DB) error {
		var ok, tenant string
		var version int
		err := errors.Join(
			db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&ok),
			db.QueryRowContext(ctx, "SELECT tenant FROM owner").Scan(&tenant),
			db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version))
		switch {
		case err != nil:
			return err
		case ok != "ok" || tenant != key.Tenant():
			return fmt.Errorf("integrity %s, tenant %s", ok, tenant)
		case version > s.version:
			return &coord.Error{Code: coord.CodeLedgerNewer, Key: key}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return s.Count(ctx, path)
}

func (s rooms) Migrate(ctx context.Context, path string, _ coord.Key) (changed bool, err error) {
	err = s.on(path, func(db *sql.DB) error {
		var version int
		if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil || version == s.version {
			return err
		}
		changed = true
		_, err := db.ExecContext(ctx, fmt.Sprintf("ALTER TABLE bookings ADD COLUMN guest TEXT; PRAGMA user_version = %d", s.version))
		return err
	})
	return changed, err
}

func (s rooms) Count(ctx context.Context, path string) (n int64, err error) {
	err = s.on(path, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT count(*) FROM bookings").Scan(&n)
	})
	return n, err
}

func (rooms) Protected() []string { return []string{"owner"} }

// A service that brings its own tables instead of the event ledger. rooms, in this
// file, implements the interface.
func ExampleSchema() {
	ctx, dir := context.Background(), must(os.MkdirTemp("", "leasehold-example-"))
	defer os.RemoveAll(dir)
	opts := router.Options{
		ReplicaID: "example-1", StateRoot: dir, Schema: rooms{version: 1},
		Leases: memlease.New(coord.SystemClock()), Copies: memstore.New(),
	}
	r := must(router.New(opts))
	tenant := must(coord.NewKey("hotel", "t-860cead4b9aab8577b5f03fdeff1ead1"))
	h := must(r.Open(ctx, tenant))
	_, err := h.DB().ExecContext(ctx, "INSERT INTO bookings(room) VALUES ('attic')")
	fmt.Println("booked:", err == nil)
	_, err = h.DB().ExecContext(ctx, "DROP TABLE owner")
	fmt.Println(coord.CodeOf(err))
	fmt.Println("closed:", r.Close(ctx) == nil)

	opts.ReplicaID, opts.Schema = "example-2", rooms{version: 2} // which has a column for the guest
	r = must(router.New(opts))
	defer r.Close(ctx)
	h = must(r.Open(ctx, tenant))
	var guest sql.NullString
	err = h.DB().QueryRowContext(ctx, "SELECT guest FROM bookings WHERE room = 'attic'").Scan(&guest)
	fmt.Println("migrated:", err == nil)
	// Output:
	// booked: true
	// SQL_REFUSED
	// closed: true
	// migrated: true
}
