package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

// A Database is one open SQLite file whose every use proves a lease. It is safe
// for concurrent use.
//
// What consumers get from it are ordinary [*sql.DB] handles: the long-lived
// [Database.DB], and one per callback from [Database.Scoped]. All draw on the same
// connections. Readers run beside each other and beside a writer. Writers take
// turns, in the order in which they came: a transaction begins IMMEDIATE, so that one
// that reads first does not fail when it comes to write. A read-only transaction
// cannot write, and holds up no writer.
//
// Foreign keys are enforced. PRAGMA foreign_keys, given outside a transaction, is the
// one setting that a consumer may change, and it holds for the handle: every
// connection of it follows.
//
// What the errors of a call mean:
//   - a [*coord.FencedError], or whatever else the gate returned: the call had no
//     effect;
//   - a [*coord.OutcomeUnknownError], from anything that can commit (Exec, Commit,
//     QueryRow and Rows of a statement that writes): the write is in
//     this file, but the lease could not be proved after it, so it must not be
//     acknowledged; or the call's context had ended by then;
//   - the error of the call's context, without that: the call had no effect, and the
//     transaction that it would have written in is over;
//   - [coord.CodeSQLRefused]: the statement would leave the file or change a
//     setting that copies depend on;
//   - [coord.CodeLedgerBusy]: the call waited in vain for its turn, and had no effect;
//   - [coord.CodeLedgerFull]: the file cannot grow, because of the disk or of
//     [DatabaseOptions.MaxBytes]; the transaction, if any, was rolled back;
//   - [coord.CodeHandleClosed]: the handle's time is over;
//   - [coord.CodeLedgerGone]: other hands deleted or replaced the file, so that it
//     cannot be opened any more; the call had no effect;
//   - [coord.CodeResourcesExhausted]: the call needed a connection, and this process may
//     open no more files; the call had no effect;
//   - [ErrTxAborted]: the transaction had ended before the call;
//   - anything else is SQLite's own.
//
// None of them is taken for a bad connection, so database/sql repeats no call.
type Database struct {
	path     string
	dsn      string
	gate     Gate
	opts     DatabaseOptions
	protects map[string]bool // lower case

	tokens  chan struct{} // one for each connection in use
	writer  chan struct{} // held by whoever writes
	done    chan struct{} // closed when closing begins
	commits atomic.Uint64
	opened  atomic.Int64 // connections to SQLite
	held    sync.WaitGroup
	file    identity // what path named when the database was opened
	root    struct {
		sync.Once
		handle *sql.DB
	}

	mu struct {
		sync.Mutex
		closed bool
		idle   []*rawConn
		scopes map[*scope]struct{}
		uses   uint64 // connections lent and given back
		seen   uint64 // uses at the latest Rest
	}
	closeOnce sync.Once
	closeErr  error
}

// OpenDatabase opens the file at path, in WAL mode and with synchronous=FULL,
// foreign keys on, behind gate. Opening itself needs no lease, and no connection unless
// the file is to be created: the first call opens the file, and says so if it cannot be
// used. Nothing else in
// this process may open the file until Close: POSIX locks belong to the process, and
// closing any descriptor of the file drops those of SQLite.
func OpenDatabase(ctx context.Context, path string, gate Gate, opts *DatabaseOptions) (*Database, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if gate == nil {
		return nil, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "open database", Detail: "a gate is required"}
	}
	if err := checkSQLiteVersion(linkedSQLiteVersion()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := &Database{path: path, gate: gate, opts: opts.withDefaults(), protects: make(map[string]bool)}
	for _, name := range d.opts.Protected {
		d.protects[strings.ToLower(name)] = true
	}
	d.tokens = make(chan struct{}, d.opts.MaxConnections)
	d.writer = make(chan struct{}, 1)
	d.done = make(chan struct{})
	d.mu.scopes = make(map[*scope]struct{})
	settings := fmt.Sprintf("_busy_timeout=%d&_synchronous=FULL&_foreign_keys=1&_stmt_cache_size=%d",
		d.opts.BusyTimeout.Milliseconds(), statementCache)
	var err error
	if d.opts.Create {
		if d.dsn, err = sqliteuri.File(d.path, "mode=rwc&"+settings); err == nil {
			err = d.create()
		}
	}
	if err == nil {
		d.dsn, err = sqliteuri.File(d.path, "mode=rw&"+settings)
	}
	if err == nil {
		d.file, err = identityOf(d.path)
	}
	if err != nil {
		return nil, errors.Join(lacking(fmt.Errorf("open database: %w", err)), closeAll(d.mu.idle))
	}
	return d, nil
}

// create makes the first connection, and the file if there is none.
func (d *Database) create() error {
	first, err := d.openRaw()
	if err == nil {
		d.mu.idle = append(d.mu.idle, first)
	}
	return err
}

// DB returns the long-lived handle. It works whenever the gate lets it, statements
// included, until the database is closed. Closing it closes only the handle.
func (d *Database) DB() *sql.DB {
	d.root.Do(func() {
		d.root.handle = d.newScope(nil).handle
		d.root.handle.SetConnMaxIdleTime(d.opts.IdleTime)
	})
	return d.root.handle
}

// Scoped returns a handle for one piece of work, on the same connections, that must
// pass gate as well; a nil gate always lets it pass. Closing the handle ends
// everything taken from it that is still open: transactions are rolled back, and
// connections, statements and result sets that somebody kept refuse with
// [coord.CodeHandleClosed]. A call that is running is interrupted, and Close waits
// for it, at most for the close timeout. The caller closes the handle.
func (d *Database) Scoped(gate Gate) *sql.DB { return d.newScope(gate).handle }

// Path returns the path that the database was opened with.
func (d *Database) Path() string { return d.path }

// Commits counts the transactions that this Database has committed. Every write
// that was acknowledged before the call is counted. A copy whose image began after
// a call that returned n is up to date as long as Commits still returns n.
func (d *Database) Commits() uint64 { return d.commits.Load() }

// Close ends every handle, as closing a [Database.Scoped] handle does, and closes
// the file, which merges the write-ahead log into it. It does not need the lease.
// Close returns an error if calls still ran when the close timeout had passed; their
// connections are closed when they return. Further calls return what the first did.
func (d *Database) Close() error {
	d.closeOnce.Do(func() { d.closeErr = d.close() })
	return d.closeErr
}

func (d *Database) close() error {
	d.DB() // so that nobody makes it, and its goroutine, later
	d.mu.Lock()
	d.mu.closed = true
	var scopes []*scope
	for s := range d.mu.scopes {
		scopes = append(scopes, s)
	}
	idle := d.mu.idle
	d.mu.idle = nil
	d.mu.Unlock()
	close(d.done)

	ctx, cancel := context.WithTimeout(context.Background(), d.opts.CloseTimeout)
	defer cancel()
	var errs []error
	for _, s := range scopes {
		s.shut()
	}
	for _, s := range scopes {
		errs = append(errs, s.end(ctx), s.handle.Close())
	}
	d.held.Wait()
	return errors.Join(append(errs, closeAll(idle))...)
}

// hold reports whether the database is open, and if so keeps Close waiting until
// d.held.Done.
func (d *Database) hold() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return false
	}
	d.held.Add(1)
	return true
}
