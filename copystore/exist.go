package copystore

import (
	"context"

	"github.com/leaseholddb/leasehold/coord"
)

// Exist reports whether the store has any object of key, trusted or not.
func (c *Copies) Exist(ctx context.Context, key coord.Key) (bool, error) {
	found, err := c.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return false, err
	}
	return len(found.objects) > 0, nil
}
