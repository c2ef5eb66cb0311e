package router

import (
	"context"
	"errors"
	"io/fs"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// A Schema is what a service keeps in its tenants' databases: how a new one is
// made, an older one brought up to date, and a restored one judged. The default is the
// event ledger, [ledger.Builtin].
//
// Every method that has a path works on a file that nobody else has open, by means of
// its own choice, and leaves it closed and complete in itself, without a journal beside
// it. Methods may be called for several tenants at once.
type Schema interface {
	// Create makes the database of a new tenant at path, where there is no file. It
	// should write down whose it is, so that Verify can tell.
	Create(ctx context.Context, path string, key coord.Key) error

	// Verify checks, without changing the file, that it is an intact database of
	// key, SQLite's own integrity check included, and returns what Count does. What
	// it refuses is not served, and the next older copy is tried: that is what an
	// error means which has no code or [coord.CodeLedgerInvalid].
	//
	// A schema that is newer than the code must be refused with
	// [coord.CodeLedgerNewer]: then the open fails, and nothing older is served in
	// its place. An error with another code, one of ctx, and a [*fs.PathError] mean
	// that the file could not be checked, and fail the open as well.
	Verify(ctx context.Context, path string, key coord.Key) (events int64, err error)

	// Migrate brings a file that Verify accepted up to what the code needs, before
	// the tenant is served, and says whether it changed anything. An error fails the
	// open; copies are as they were.
	Migrate(ctx context.Context, path string, key coord.Key) (changed bool, err error)

	// Count returns the number that a copy's manifest records and that must agree
	// with Verify's when the copy is restored. It should be cheap: it is asked of
	// every image.
	Count(ctx context.Context, path string) (events int64, err error)

	// Protected names the tables, triggers and indexes that no statement through a
	// handle may drop, alter or put triggers on.
	Protected() []string
}

// judge gives an error of Verify that has no code its meaning.
func judge(ctx context.Context, key coord.Key, err error) error {
	var path *fs.PathError
	if err == nil || ctx.Err() != nil || coord.CodeOf(err) != "" || errors.As(err, &path) || fencing.Exhausted(err) {
		return err
	}
	return &coord.Error{Code: coord.CodeLedgerInvalid, Op: "verify", Key: key, Err: err}
}
