package fencing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/fencing"
)

func TestDamaged(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("file is not a database"), false},
		{sqlite3.Error{Code: sqlite3.ErrNotADB}, true},
		{fmt.Errorf("open: %w", sqlite3.Error{Code: sqlite3.ErrCorrupt}), true},
		{sqlite3.Error{Code: sqlite3.ErrCorrupt, ExtendedCode: sqlite3.ErrCorruptVTab}, false},
		{sqlite3.Error{Code: sqlite3.ErrIoErr}, false},
	} {
		if got := fencing.Damaged(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
