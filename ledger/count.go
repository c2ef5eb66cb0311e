package ledger

import (
	"context"
	"fmt"
)

// Count returns the number of events that the fold of the ledger at path gives,
// without checking anything. The file must be complete by itself, as an image is,
// and is only read.
func Count(ctx context.Context, path string) (int64, error) {
	db, err := openPlain(path, "mode=ro&immutable=1")
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	defer db.Close()
	var events int64
	if err := db.QueryRowContext(ctx, "SELECT events FROM ledger_fold").Scan(&events); err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return events, nil
}
