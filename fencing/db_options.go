package fencing

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// Defaults of [DatabaseOptions].
const (
	DefaultBusyTimeout     = 5 * time.Second
	DefaultCloseTimeout    = 10 * time.Second
	DefaultMaxConnections  = 64
	DefaultIdleConnections = 4
	DefaultIdleTime        = time.Minute
)

// MinSQLiteVersion is the oldest SQLite that a guarded database runs on, as
// sqlite3_libversion_number counts. Before 3.51.3 a write that raced with a reset of
// the write-ahead log could be lost.
const MinSQLiteVersion = 3051003

// DatabaseOptions configure [OpenDatabase]. The zero value, or nil, means the
// defaults.
type DatabaseOptions struct {
	// Create makes an empty database if the file does not exist. Without it a
	// missing file is an error, so that a deleted ledger cannot come back as an
	// empty one.
	Create bool
	// BusyTimeout bounds how long a call waits for the write lock or for a free
	// connection before it fails with [coord.CodeLedgerBusy]. Zero means [DefaultBusyTimeout].
	BusyTimeout time.Duration
	// CloseTimeout bounds how long closing waits for calls that are running.
	// Zero means [DefaultCloseTimeout].
	CloseTimeout time.Duration
	// MaxConnections is the greatest number of connections in use at once, over
	// all handles of the database. Each costs two descriptors. Work that holds
	// result sets open while it asks for further connections needs one for
	// each. Zero means [DefaultMaxConnections].
	MaxConnections int
	// IdleConnections is how many unused connections are kept, at least one. Zero
	// means [DefaultIdleConnections].
	IdleConnections int
	// IdleTime is how long the long-lived handle keeps connections that nobody uses;
	// after that the database keeps them, until [Database.Rest] closes them. Zero means
	// [DefaultIdleTime].
	IdleTime time.Duration
	// MaxBytes bounds the size of the file, rounded down to whole pages; a write that
	// needs more fails with [coord.CodeLedgerFull]. A file that is larger already can be
	// read, and shrunk, but not grow. Zero means as much as SQLite can hold.
	MaxBytes int64
	// MaxValue bounds the bytes of one value, and of one row, that a statement may make
	// or read; a greater one fails with SQLite's "too big", before memory is taken for
	// it. Zero means as much as SQLite can hold, about 1 GB.
	MaxValue int
	// Protected names tables, triggers and indexes that consumers may not drop,
	// alter or put triggers on. Letters count without regard to case.
	Protected []string
}

// Validate names every option that is out of range, with
// [coord.CodeOptionsInvalid].
func (o *DatabaseOptions) Validate() error {
	if o == nil {
		return nil
	}
	var wrong []string
	check := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	check(o.BusyTimeout < 0 || o.BusyTimeout%time.Millisecond != 0, "BusyTimeout must be a whole, positive number of milliseconds")
	check(o.CloseTimeout < 0, "CloseTimeout must be positive")
	check(o.MaxConnections < 0, "MaxConnections must be positive")
	check(o.IdleConnections < 0, "IdleConnections must be positive")
	check(o.IdleTime < 0, "IdleTime must be positive")
	check(o.MaxBytes < 0, "MaxBytes must be positive")
	check(o.MaxValue < 0 || o.MaxValue > maxValue, fmt.Sprintf("MaxValue must be within 0 and %d", maxValue))
	if len(wrong) == 0 {
		return nil
	}
	return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "open database", Detail: strings.Join(wrong, "; ")}
}

func (o *DatabaseOptions) withDefaults() DatabaseOptions {
	var filled DatabaseOptions
	if o != nil {
		filled = *o
	}
	fill := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	fill(&filled.BusyTimeout, DefaultBusyTimeout)
	fill(&filled.CloseTimeout, DefaultCloseTimeout)
	fill(&filled.IdleTime, DefaultIdleTime)
	if filled.MaxValue == 0 {
		filled.MaxValue = maxValue
	}
	if filled.MaxConnections == 0 {
		filled.MaxConnections = DefaultMaxConnections
	}
	if filled.IdleConnections == 0 {
		filled.IdleConnections = DefaultIdleConnections
	}
	return filled
}

// checkSQLiteVersion refuses a SQLite that may lose commits.
func checkSQLiteVersion(version int) error {
	if version >= MinSQLiteVersion {
		return nil
	}
	return &coord.Error{
		Code:   coord.CodeOptionsInvalid,
		Op:     "open database",
		Detail: fmt.Sprintf("SQLite %d is older than %d and can lose commits", version, MinSQLiteVersion),
		Hint:   "build with a newer SQLite",
	}
}

func linkedSQLiteVersion() int {
	_, number, _ := sqlite3.Version()
	return number
}
