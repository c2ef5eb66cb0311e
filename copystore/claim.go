package copystore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// Claim writes the granted epoch's origin, naming the copy that the ledger was
// restored from (nil if it started empty), and returns what publishes the
// tenure's copies. Before anything is served the caller proves once more that
// the lease is held.
//
// A claim of this very tenure that names the same copy is recognised, so a call
// that failed with [coord.CodeCopyStoreUnavailable] may be repeated. Anybody
// else's is [coord.CodeCopyConflict].
func (c *Copies) Claim(ctx context.Context, grant coord.Grant, from *Ref) (*Publisher, error) {
	if err := grant.Tenure.Validate(); err != nil {
		return nil, err
	}
	origin := Origin{
		Format:   FormatVersion,
		Key:      grant.Key,
		Epoch:    grant.Epoch,
		Revision: grant.Revision,
		Owner:    grant.Owner,
		Time:     NewTimestamp(c.clock.Wall()),
	}
	if from != nil {
		origin.From = new(*from)
	}
	if err := origin.validate(grant.Key, grant.Epoch); err != nil {
		return nil, fmt.Errorf("claim %s: %w", grant.Key, err)
	}
	body, err := origin.Encode()
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", grant.Key, err)
	}
	err = c.createDocument(ctx, grant.Key, originName(grant.Key, grant.Epoch), body)
	if errors.Is(err, ErrExists) {
		err = c.recogniseClaim(ctx, origin)
	}
	if err != nil {
		return nil, err
	}
	return &Publisher{copies: c, tenure: grant.Tenure, revision: grant.Revision, floor: grant.ForgottenAt, origin: origin}, nil
}

func (c *Copies) recogniseClaim(ctx context.Context, origin Origin) error {
	found, err := c.readOrigin(ctx, origin.Key, origin.Epoch)
	if reason, bad := asUntrusted(err); bad {
		return conflict("claim", origin.Key, reason)
	}
	if err != nil {
		return err
	}
	if !found.sameClaim(origin) {
		return conflict("claim", origin.Key, fmt.Sprintf("%s was claimed by %s at revision %d", origin.Epoch, found.Owner, found.Revision))
	}
	return nil
}

func conflict(op string, key coord.Key, detail string) error {
	return &coord.Error{Code: coord.CodeCopyConflict, Op: op, Key: key, Detail: detail}
}
