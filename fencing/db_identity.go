package fencing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// An identity tells a database file from another one under the same name. File systems
// use the numbers of deleted files again, so the time of its making is a part of it,
// where they keep one.
type identity struct {
	info os.FileInfo
	made time.Time
}

func identityOf(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	return identity{info, birthTime(path)}, nil
}

// present looks at the name only. Opening a file that was put in the place of the
// ledger would serve a ledger without what was acknowledged.
func (d *Database) present() error {
	if d.file.info == nil {
		return nil // this is the opening
	}
	now, err := identityOf(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gone("was deleted")
	case err != nil:
		return fmt.Errorf("look for the database: %w", err)
	case !os.SameFile(now.info, d.file.info) || !now.made.Equal(d.file.made):
		return gone("was replaced by another one")
	case now.info.Size() == 0:
		return gone("was emptied")
	}
	return nil
}

func gone(how string) error {
	return &coord.Error{
		Code: coord.CodeLedgerGone, Detail: "the local file " + how + " while the ledger was open",
		Hint: "keep other programs out of the state directory",
	}
}
