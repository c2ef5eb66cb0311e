package fencing

import (
	"errors"

	"github.com/mattn/go-sqlite3"
)

// Damaged reports whether err is SQLite's word that the database file does not hold what
// SQLite wrote: it was overwritten, or cut short, or its disk lost something. What a
// virtual table says of its own tables is not meant, since consumers may write those.
func Damaged(err error) bool {
	var e sqlite3.Error
	if err == nil || !errors.As(err, &e) {
		return false
	}
	return e.Code == sqlite3.ErrNotADB || e.Code == sqlite3.ErrCorrupt && e.ExtendedCode != sqlite3.ErrCorruptVTab
}
