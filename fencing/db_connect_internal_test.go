package fencing

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// What a connection cannot be opened for has the code of what is lacking: an idle tenant
// that is woken on a full disk meets it there first.
func TestConnectionLacksRoomOrDescriptors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code coord.Code
	}{
		{sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: syscall.ENOSPC}, coord.CodeLedgerFull},
		{sqlite3.Error{Code: sqlite3.ErrFull}, coord.CodeLedgerFull},
		{sqlite3.Error{Code: sqlite3.ErrCantOpen, SystemErrno: syscall.EMFILE}, coord.CodeResourcesExhausted},
		{sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: syscall.EIO}, ""},
	} {
		d := &Database{}
		d.opened.Add(1)
		err := d.unconnected(nil, fmt.Errorf("open database: %w", c.err))
		if coord.CodeOf(err) != c.code || !errors.Is(err, c.err) {
			t.Errorf("%v becomes %v, want %q", c.err, err, c.code)
		}
		if n := d.opened.Load(); n != 0 {
			t.Errorf("%d connections count", n)
		}
	}
}
