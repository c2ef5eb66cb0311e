package copystore

import (
	"context"

	"github.com/leaseholddb/leasehold/coord"
)

// Retain deletes what the lineage does not need any more: copies older than the
// keep newest committed ones (at least 1), images that never got a manifest,
// and the origins that led only there. It returns how many objects it deleted.
//
// It does nothing before this tenure has committed a copy, and it needs no proof
// of the lease: an owner that is superseded in the middle deletes only what is
// older than a copy that it had committed while it held the lease, and its
// successor starts from that one or a newer one. It never touches this epoch's
// origin, what is newer than the last committed copy, or any later epoch.
//
// It needs no grace for orphans: no name is used twice, so an image older than a
// committed copy will never get a manifest that counts, and one that lands later
// goes with a later call. Nor for restores: what an owner reads is among the
// newest, and what this owner reads is spared with [Publisher.Hold]. Somebody who
// reads an older copy without a lease may find it gone.
//
// Where the lineage is broken, nothing at or beyond the break is deleted: an
// operator may still want it.
func (p *Publisher) Retain(ctx context.Context, keep int) (int, error) {
	last, ok := p.Last()
	if !ok {
		return 0, nil
	}
	key := p.tenure.Key
	found, err := p.copies.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return 0, err
	}
	if !found.origins[p.tenure.Epoch] {
		return 0, conflict("retain", key, "the origin of "+p.tenure.Epoch.String()+" is gone")
	}
	plan, err := p.planRetention(ctx, found, last.Ref(), max(keep, 1))
	if err != nil {
		return 0, err
	}
	return p.copies.removeAll(ctx, key, "retain", found, func(o object) bool { return plan.superseded(o) && !p.holds(o.ref) })
}

// Hold keeps Retain from deleting a copy until release is called, once.
func (p *Publisher) Hold(ref Ref) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.held == nil {
		p.mu.held = make(map[Ref]int)
	}
	p.mu.held[ref]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.held[ref]--; p.mu.held[ref] == 0 {
			delete(p.mu.held, ref)
		}
	}
}

func (p *Publisher) holds(ref Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.held[ref] > 0
}

// A retention says which objects have to stay.
type retention struct {
	last    Ref                  // the newest committed copy of this tenure
	copies  map[Ref]bool         // to keep
	origins map[coord.Epoch]bool // that lead from last to the oldest copy to keep
	broken  coord.Epoch          // nothing up to this epoch is touched; 0 if the lineage is whole
}

func (p *Publisher) planRetention(ctx context.Context, found *listing, last Ref, keep int) (retention, error) {
	plan := retention{last: last, copies: make(map[Ref]bool), origins: make(map[coord.Epoch]bool)}
	oldest := last.Epoch
	line := lineage{
		listing: found,
		floor:   p.floor,
		origin: func(e coord.Epoch) (Origin, error) {
			if e == p.tenure.Epoch {
				return p.origin, nil
			}
			return p.copies.readOrigin(ctx, p.tenure.Key, e)
		},
		try: func(ref Ref) (bool, error) {
			if !found.complete(ref) {
				return false, nil
			}
			plan.copies[ref] = true
			oldest = ref.Epoch
			return len(plan.copies) == keep, nil
		},
	}
	w, err := line.follow(last.Epoch, last.Seq)
	if err != nil {
		return retention{}, err
	}
	for _, e := range w.epochs {
		if e > oldest {
			plan.origins[e] = true
		}
	}
	if w.broken != "" {
		plan.broken = w.epochs[len(w.epochs)-1]
	}
	return plan, nil
}

// superseded reports whether o may be deleted.
func (r retention) superseded(o object) bool {
	switch {
	case o.ref.Epoch <= r.broken:
		return false
	case o.kind == kindOrigin:
		return o.ref.Epoch < r.last.Epoch && !r.origins[o.ref.Epoch]
	case o.kind == kindManifest, o.kind == kindImage:
		return o.ref.Before(r.last) && !r.copies[o.ref]
	}
	return false
}
