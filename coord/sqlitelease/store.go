package sqlitelease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
)

// The defaults of [Options].
const (
	DefaultBusyTimeout = 5 * time.Second
	DefaultPoll        = 100 * time.Millisecond
)

const (
	// nap is how long SQLite waits for a lock before the Store looks whether its
	// caller still waits.
	nap     = 50 * time.Millisecond
	readers = 4
)

// Options adjust a [Store]. The zero value of each field is its default.
type Options struct {
	// BusyTimeout is how long an operation waits, in real time, for other
	// processes to leave the file: [DefaultBusyTimeout] if 0. Then it is
	// [coord.CodeLeaseStoreUnavailable].
	BusyTimeout time.Duration
	// Poll is how often WaitReleased looks: [DefaultPoll] if 0.
	Poll time.Duration
	// Address is written with every grant and returned as [coord.Record.Address].
	Address string
	// Clock is what leases are counted on, and Boot names it: Stores that give the
	// same name read the same clock. Both are set or neither; if neither, the
	// clock is that of the host's boot.
	Clock coord.Clock
	Boot  string
}

// A Store keeps leases in a file. It is safe for concurrent use, and so is the file
// by Stores of several processes.
type Store struct {
	db    *sql.DB
	opts  Options
	clock coord.Clock
	write chan struct{} // one slot: SQLite has one writer
}

var (
	_ coord.LeaseStore    = (*Store)(nil)
	_ coord.ReleaseWaiter = (*Store)(nil)
	_ coord.Auditor       = (*Store)(nil)
)

// Open opens the lease file at path, and creates it if it does not exist; its
// directory must. A file of something else, and options that contradict each
// other, are [coord.CodeOptionsInvalid].
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	uri, err := sqliteuri.File(path, fmt.Sprintf("_journal_mode=WAL&_synchronous=FULL&_busy_timeout=%d&_txlock=immediate", nap.Milliseconds()))
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		return nil, fail(ctx, "open", coord.Key{}, err)
	}
	db.SetMaxOpenConns(readers + 1)
	db.SetMaxIdleConns(readers + 1)
	s := &Store{db: db, opts: opts, clock: opts.Clock, write: make(chan struct{}, 1)}
	if err := s.update(ctx, prepare); err != nil {
		return nil, errors.Join(fail(ctx, "open", coord.Key{}, err), db.Close())
	}
	return s, nil
}

func (o Options) complete() (Options, error) {
	bad := ""
	switch {
	case o.BusyTimeout < 0 || o.Poll < 0:
		bad = "BusyTimeout and Poll must not be negative"
	case (o.Clock == nil) != (o.Boot == ""):
		bad = "Clock and Boot go together"
	}
	if bad != "" {
		return o, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "sqlite lease store", Detail: bad}
	}
	if o.BusyTimeout == 0 {
		o.BusyTimeout = DefaultBusyTimeout
	}
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Clock == nil {
		boot, err := hostBoot()
		if err != nil {
			return o, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "sqlite lease store", Detail: "there is no clock", Err: err}
		}
		o.Clock, o.Boot = coord.SystemClock(), boot
	}
	return o, nil
}

// Close waits for running calls and closes the file. It releases no lease.
func (s *Store) Close() error { return s.db.Close() }

// update runs f in one transaction that has the write lock from its beginning.
// Once f has begun it is not interrupted, so its outcome is always known.
func (s *Store) update(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.write <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.write }()
	return s.retry(ctx, func() error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx := context.WithoutCancel(ctx)
		if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		err = f(ctx, conn)
		if err == nil {
			_, err = conn.ExecContext(ctx, "COMMIT")
		}
		if err != nil {
			// SQLite may have rolled back already.
			_, _ = conn.ExecContext(ctx, "ROLLBACK")
		}
		return err
	})
}

// retry repeats f, which had no effect, while other processes are in its way.
func (s *Store) retry(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(s.opts.BusyTimeout)
	for {
		err := f()
		if !busy(err) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if time.Now().After(deadline) {
			return err
		}
		timer := time.NewTimer(time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func busy(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrBusy || e.Code == sqlite3.ErrLocked)
}

// fail is the only place where an error of SQLite becomes one of ours. Errors that
// have a code already pass through.
func fail(ctx context.Context, op string, key coord.Key, err error) error {
	if err == nil || coord.CodeOf(err) != "" {
		return err
	}
	var e sqlite3.Error
	unavailable := ctx.Err() != nil || errors.Is(err, sql.ErrConnDone)
	if errors.As(err, &e) {
		switch e.Code {
		case sqlite3.ErrBusy, sqlite3.ErrLocked, sqlite3.ErrIoErr, sqlite3.ErrFull, sqlite3.ErrCantOpen, sqlite3.ErrReadonly, sqlite3.ErrNomem:
			unavailable = true
		}
	}
	if !unavailable {
		return fmt.Errorf("sqlitelease: %s: %w", op, err)
	}
	return &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: op, Key: key, Err: err}
}

func lost(op string, key coord.Key) error {
	return &coord.Error{Code: coord.CodeLeaseLost, Op: op, Key: key, Detail: "the store knows no such live tenure"}
}
