package fencing

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// A Gate answers the question that every call through a guarded database asks: is
// the tenant still held? Implementations are safe for concurrent use and do not
// block; a [Lease] is one.
type Gate interface {
	// Check returns nil while the lease can be proved, and otherwise the reason
	// why not, usually a [*coord.FencedError]. The guard hands that error to its
	// caller unchanged, so it must not unwrap to driver.ErrBadConn.
	Check() error
}

// A ReadGate is a [Gate] with a cheaper form of its question. The guard asks it
// before work that cannot commit by itself: every query, every step of a result
// set, every statement before it starts. Inside a commit and after it the guard
// always asks Check.
type ReadGate interface {
	Gate
	// CheckRead is Check, except that it may be up to a millisecond late in
	// noticing that time has passed. It is never late in noticing that the lease
	// was given back or lost.
	CheckRead() error
}

// ErrTxAborted is in the tree of the error that a statement or Commit of a
// transaction returns after SQLite rolled the transaction back by itself, because
// a statement in it was cancelled or failed in a way that ends transactions, or
// because a statement that was compiled before it ended it. What follows would run
// outside the transaction and survive its Rollback, so it is refused. For a
// transaction that began by text, on one connection, this ends with a COMMIT or ROLLBACK by text.
var ErrTxAborted = errors.New("fencing: the transaction is over")

// SQLErrorOf reports whether err says that the statement itself is at fault — bad
// syntax, a missing table, a constraint, a write in a read-only transaction, too
// few arguments — and returns SQLite's message for it. It is false for everything
// that another attempt at the same statement could survive: a busy or full
// database, an I/O error, an interrupt, a refusal by the guard.
func SQLErrorOf(err error) (message string, ok bool) {
	if err == nil || coord.CodeOf(err) != "" {
		return "", false
	}
	var e sqlite3.Error
	if errors.As(err, &e) {
		switch e.Code {
		case sqlite3.ErrError, sqlite3.ErrConstraint, sqlite3.ErrMismatch, sqlite3.ErrRange,
			sqlite3.ErrReadonly, sqlite3.ErrTooBig, sqlite3.ErrMisuse, sqlite3.ErrAbort:
			return e.Error(), true
		}
		return "", false
	}
	// The driver has no type for this one.
	if strings.Contains(err.Error(), "not enough args to execute query") {
		return err.Error(), true
	}
	return "", false
}

func isBusy(err error) bool { return isSQLite(err, sqlite3.ErrBusy) }

func isFull(err error) bool { return isSQLite(err, sqlite3.ErrFull) }

func isSQLite(err error, code sqlite3.ErrNo) bool {
	if err == nil {
		return false // before e is allocated
	}
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == code
}

func full(cause error) error {
	return &coord.Error{
		Code: coord.CodeLedgerFull, Detail: "the write was rolled back", Err: cause,
		Hint: "free space on the disk, or raise the size limit",
	}
}

// lacking gives a failure for want of disk or of descriptors its code.
func lacking(err error) error { return exhausted(noRoom(err)) }

// noRoom gives a failure for want of room on the disk its code, where no transaction was at
// stake.
func noRoom(err error) error {
	var e sqlite3.Error
	if isFull(err) || errors.Is(err, syscall.ENOSPC) || errors.As(err, &e) && e.SystemErrno == syscall.ENOSPC {
		return &coord.Error{Code: coord.CodeLedgerFull, Err: err, Hint: "free space on the disk"}
	}
	return err
}

// maxValue is the most bytes that SQLite takes as one value. The driver counts in 32
// bits, so that a longer one would arrive as its beginning.
const maxValue = 1_000_000_000

func checkSize(args []driver.NamedValue) error {
	for i := range args {
		n := 0
		switch v := args[i].Value.(type) {
		case string:
			n = len(v)
		case []byte:
			n = len(v)
		}
		if n > maxValue {
			return sqlite3.Error{Code: sqlite3.ErrTooBig}
		}
	}
	return nil
}

func busy(waited string, cause error) error {
	return &coord.Error{Code: coord.CodeLedgerBusy, Detail: "waited in vain " + waited, Err: cause}
}

func refuse(what string, cause error) error {
	return &coord.Error{Code: coord.CodeSQLRefused, Detail: what + " is not allowed in a guarded database", Err: cause}
}

func closedError(what string) error {
	return &coord.Error{Code: coord.CodeHandleClosed, Detail: "the " + what + " is closed"}
}

func txAborted(cause error) error {
	if cause == nil {
		return ErrTxAborted
	}
	return fmt.Errorf("%w: %w", ErrTxAborted, cause)
}

// guardDriver is what DB.Driver returns: a driver that opens nothing, so that no
// unguarded connection can be had from it.
type guardDriver struct{}

func (guardDriver) Open(string) (driver.Conn, error) {
	return nil, refuse("opening a connection by name", nil)
}
