package copystore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// rollbackBase is the name, below a tenant's prefix, of the mark that the lease
// store was found to have forgotten grants of the tenant.
const rollbackBase = "rolled-back.json"

func rollbackName(key coord.Key) string { return tenantPrefix(key) + rollbackBase }

// A rollbackMark is for people; that it is there is what counts.
type rollbackMark struct {
	Format  int         `json:"format"` // [FormatVersion]
	Key     coord.Key   `json:"key"`
	Granted coord.Epoch `json:"granted"` // although the copy store had it already
	Time    Timestamp   `json:"time"`    // by the finder's wall clock
}

// rolledBack says what the listing shows: that the lease store forgot grants, or
// that the owner was superseded. Which of the two the caller knows.
func rolledBack(grant coord.Grant, found *listing) error {
	newest := found.newest()
	problem := &coord.Error{
		Code:   coord.CodeEpochRolledBack,
		Op:     "restore",
		Key:    grant.Key,
		Detail: fmt.Sprintf("the lease store granted %s, but the copy store has objects of %s", grant.Epoch, newest),
		Hint:   fmt.Sprintf("the lease store was restored from an older backup or replaced; raise the tenant's epoch above %d", uint64(newest)),
	}
	if found.rolledBack {
		problem.Detail = "the lease store was found to have forgotten grants of this tenant, and nobody has raised its epoch since"
	}
	return problem
}

// inOrder refuses a grant whose revision is not above that of an older epoch: the lease
// store forgot the older one, and the epochs that it granted anew have passed it since,
// each to somebody who got no further than that.
func (r *restoration) inOrder(epoch coord.Epoch, revision coord.Revision) error {
	g := r.grant
	if epoch <= g.RaisedTo || revision < g.Revision || safeguards.Off(safeguards.RollbackDetection) {
		return nil
	}
	return &coord.Error{
		Code: coord.CodeEpochRolledBack, Op: "restore", Key: g.Key,
		Detail: fmt.Sprintf("the lease store granted %s at revision %d, but %s, which came before it, at %d", g.Epoch, g.Revision, epoch, revision),
		Hint:   fmt.Sprintf("the lease store was restored from an older backup or replaced; raise the tenant's epoch above %d", uint64(epoch)),
	}
}

// markRollback makes the refusal last. Without the mark every attempt to open would
// be granted one epoch more, until one of them is past the copies and passes for
// their successor. Only an owner that proved its lease after it listed may mark:
// otherwise the newer objects may be its successor's.
func (c *Copies) markRollback(ctx context.Context, grant coord.Grant) error {
	mark := rollbackMark{Format: FormatVersion, Key: grant.Key, Granted: grant.Epoch, Time: NewTimestamp(c.clock.Wall())}
	body, err := encodeDocument(mark)
	if err == nil {
		err = c.createDocument(ctx, grant.Key, rollbackName(grant.Key), body)
	}
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// ClearRollback removes the mark that keeps a tenant closed after
// [coord.CodeEpochRolledBack]. An operator does so once the lease store cannot grant
// an epoch again that a copy has: after its next epoch was raised above them all.
func (c *Copies) ClearRollback(ctx context.Context, key coord.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return c.remove(ctx, key, rollbackName(key))
}
