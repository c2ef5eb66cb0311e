package copystore

import (
	"context"
	"errors"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// A lineage walks from an epoch back through what its owner started from.
type lineage struct {
	listing *listing
	floor   coord.Epoch                             // epochs up to it are dead
	origin  func(epoch coord.Epoch) (Origin, error) // fails with an untrustedError if it cannot be believed
	try     func(ref Ref) (taken bool, err error)   // offered each copy, newest first
}

// A walk says how far a lineage could be followed.
type walk struct {
	taken  bool          // try took a copy, and the walk ended there
	copies bool          // a copy was offered, so the ledger was not empty
	epochs []coord.Epoch // visited, newest first
	broken string        // why the last epoch's origin leads nowhere; empty if it is not known to
}

// follow offers the copies of epoch up to seq limit (0 for all) to try, then
// those that its origin leads to, until try takes one or the lineage ends. The
// copy that an origin names is offered even if it was not listed: that it is
// gone has to be known, not overlooked.
//
// Every step goes to an older epoch, which origins guarantee.
func (l lineage) follow(epoch coord.Epoch, limit uint64) (walk, error) {
	var w walk
	for epoch > l.floor {
		w.epochs = append(w.epochs, epoch)
		for _, seq := range l.seqs(epoch, limit) {
			w.copies = true
			taken, err := l.try(Ref{Epoch: epoch, Seq: seq})
			if err != nil {
				return w, err
			}
			if taken {
				w.taken = true
				return w, nil
			}
		}
		origin, err := l.origin(epoch)
		if reason, bad := asUntrusted(err); bad {
			w.broken = reason
			return w, nil
		}
		if err != nil {
			return w, err
		}
		if origin.From == nil {
			return w, nil
		}
		epoch, limit = origin.From.Epoch, origin.From.Seq
		if safeguards.Off(safeguards.Lineage) {
			limit = 0
		}
	}
	return w, nil
}

// seqs returns the committed copies of epoch up to limit, newest first, and limit
// itself in any case unless it is 0.
func (l lineage) seqs(epoch coord.Epoch, limit uint64) []uint64 {
	var seqs []uint64
	if limit > 0 {
		seqs = append(seqs, limit)
	}
	for _, seq := range slices.Backward(l.listing.manifests[epoch]) {
		if limit == 0 || seq < limit {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// readOrigin returns an epoch's claim, or an untrustedError if it is missing or
// cannot be believed.
func (c *Copies) readOrigin(ctx context.Context, key coord.Key, epoch coord.Epoch) (Origin, error) {
	b, err := c.readDocument(ctx, key, originName(key, epoch))
	if errors.Is(err, ErrNotExist) {
		return Origin{}, untrusted("origin is missing")
	}
	if err != nil {
		return Origin{}, err
	}
	o, err := ParseOrigin(b, key, epoch)
	if err != nil {
		return Origin{}, untrusted("%v", err)
	}
	return o, nil
}

// readManifest returns a copy's manifest, or an untrustedError if it is missing
// or cannot be believed.
func (c *Copies) readManifest(ctx context.Context, key coord.Key, ref Ref) (Manifest, error) {
	b, err := c.readDocument(ctx, key, manifestName(key, ref))
	if errors.Is(err, ErrNotExist) {
		return Manifest{}, untrusted("manifest is missing")
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := ParseManifest(b, key, ref)
	if err != nil {
		return Manifest{}, untrusted("%v", err)
	}
	return m, nil
}
