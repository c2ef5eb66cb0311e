package copystore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// maxDeleteFailures is after how many failed deletes the rest is not tried: each
// may take a whole timeout.
const maxDeleteFailures = 4

// Forget deletes every object of key's epochs up to floor, whoever wrote it, and
// returns how many there were. It is called after the lease store has raised the
// floor that far, and may be called again at any time, by any owner: it never
// touches a later epoch or another tenant. An object that lands after the call
// is dead all the same, and goes with the next one.
//
// A delete that fails is [coord.CodeCopyStoreUnavailable] with the object's name;
// those before and after it count.
func (c *Copies) Forget(ctx context.Context, key coord.Key, floor coord.Epoch) (int, error) {
	if err := key.Validate(); err != nil {
		return 0, err
	}
	found, err := c.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return 0, err
	}
	return c.removeAll(ctx, key, "forget", found, func(o object) bool { return o.ref.Epoch <= floor })
}

// removeAll deletes the listed objects that doomed selects, oldest epoch first
// and manifests before images before origins in each. It goes on after a failure
// and reports the failures together.
func (c *Copies) removeAll(ctx context.Context, key coord.Key, op string, found *listing, doomed func(object) bool) (int, error) {
	deleted := 0
	var failures []error
	for _, o := range found.objects {
		if !doomed(o) {
			continue
		}
		err := c.remove(ctx, key, o.name)
		if err == nil {
			deleted++
			continue
		}
		failures = append(failures, err)
		if ctx.Err() != nil || len(failures) == maxDeleteFailures {
			break
		}
	}
	if len(failures) > 0 {
		return deleted, fmt.Errorf("%s: after %d deleted objects: %w", op, deleted, errors.Join(failures...))
	}
	return deleted, nil
}
