package fencing

import (
	"errors"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// Rest lets a database go to rest: if nobody has used it since the call before, and
// nobody holds a connection, a transaction or a result set, it closes its connections.
// It reports whether none is left, that of an [Database.Image] included. Then the database
// takes no descriptor, and the write-ahead log has been merged into the file; the next call
// opens the file again, and everything that was made earlier works on, statements and
// settings included. Neither needs the lease. Calls that go on at the same time are not disturbed.
//
// It fails with [coord.CodeLedgerGone] if the file was deleted or replaced, whether or
// not the database is at rest; the call that would have to open it again says the same.
func (d *Database) Rest() (resting bool, err error) {
	if !d.hold() {
		return false, closedError("database")
	}
	defer d.held.Done()
	if err := d.present(); err != nil {
		return false, err
	}
	var idle []*rawConn
	d.mu.Lock()
	unused := d.mu.uses == d.mu.seen && len(d.tokens) == 0
	d.mu.seen = d.mu.uses
	if unused {
		idle, d.mu.idle = d.mu.idle, nil
	}
	d.mu.Unlock()
	err = closeAll(idle)
	return unused && d.opened.Load() == 0, err
}

func closeAll(conns []*rawConn) error {
	var errs []error
	for _, r := range conns {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// exhausted gives an error that comes of a want of file descriptors its code.
func exhausted(err error) error {
	if !Exhausted(err) {
		return err
	}
	return &coord.Error{
		Code: coord.CodeResourcesExhausted, Detail: "this process, or its host, has no file descriptor left", Err: err,
		Hint: "raise the limit of open files, or let the replica hold fewer tenants in use at once",
	}
}

// Exhausted reports whether err, which may be SQLite's, comes of a want of file
// descriptors, in this process or on its host. Such an error says nothing about any file.
func Exhausted(err error) bool {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return true
	}
	var e sqlite3.Error
	return err != nil && errors.As(err, &e) && e.Code == sqlite3.ErrCantOpen &&
		(e.SystemErrno == syscall.EMFILE || e.SystemErrno == syscall.ENFILE)
}
