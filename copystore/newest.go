package copystore

import (
	"context"

	"github.com/leaseholddb/leasehold/coord"
)

// NewestEpoch returns the newest epoch that the store has any object of, trusted or
// not, and 0 if it has none of key. A lease store that was rolled back must not
// grant it again.
func (c *Copies) NewestEpoch(ctx context.Context, key coord.Key) (coord.Epoch, error) {
	found, err := c.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return 0, err
	}
	return found.newest(), nil
}
