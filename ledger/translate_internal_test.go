package ledger

import (
	"errors"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/coord"
)

// Trap 72: that a file could not be opened or read, as when there is no descriptor left,
// is no verdict about it: an older copy must not be served in its place.
func TestWhatSaysNothingAboutTheFile(t *testing.T) {
	v := verifier{ctx: t.Context()}
	for _, code := range []sqlite3.ErrNo{sqlite3.ErrCantOpen, sqlite3.ErrNomem, sqlite3.ErrIoErr} {
		if err := v.translate(sqlite3.Error{Code: code}); errors.Is(err, coord.CodeLedgerInvalid) {
			t.Errorf("%v became %v", code, err)
		}
	}
	for _, code := range []sqlite3.ErrNo{sqlite3.ErrCorrupt, sqlite3.ErrNotADB} {
		if err := v.translate(sqlite3.Error{Code: code}); !errors.Is(err, coord.CodeLedgerInvalid) {
			t.Errorf("%v became %v", code, err)
		}
	}
}
