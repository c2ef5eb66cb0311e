package memlease

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// wants are the requests that stand, in the order in which they were made.
type wants struct {
	standing []numberedWant
	made     uint64        // requests so far
	changed  chan struct{} // closed and replaced with each new request
}

type numberedWant struct {
	coord.Want
	number uint64
}

// Want implements [coord.WantStore]. A request stands until it is withdrawn: this
// store knows nothing of the death of an asker.
func (s *Store) Want(ctx context.Context, key coord.Key, asker string) (withdraw func(ctx context.Context) error, _ error) {
	if err := usable(ctx, key.Validate(), coord.ValidateOwner(asker)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isIt := func(w numberedWant) bool { return w.Key == key && w.Asker == asker }
	if !slices.ContainsFunc(s.mu.wants.standing, isIt) {
		s.mu.wants.made++
		s.mu.wants.standing = append(s.mu.wants.standing, numberedWant{
			coord.Want{Key: key, Asker: asker, Since: s.clock.Wall().Truncate(time.Millisecond)}, s.mu.wants.made,
		})
		close(s.mu.wants.changed)
		s.mu.wants.changed = make(chan struct{})
	}
	return func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.wants.standing = slices.DeleteFunc(s.mu.wants.standing, isIt)
		return nil
	}, nil
}

// Wants implements [coord.WantStore].
func (s *Store) Wants(ctx context.Context, key coord.Key) ([]coord.Want, error) {
	if err := usable(ctx, key.Validate()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []coord.Want
	for _, w := range s.mu.wants.standing {
		if w.Key == key {
			found = append(found, w.Want)
		}
	}
	slices.SortFunc(found, func(a, b coord.Want) int { return cmp.Compare(a.Asker, b.Asker) })
	return found, nil
}

// WatchWants implements [coord.WantStore].
func (s *Store) WatchWants(ctx context.Context, notify func(coord.Want)) error {
	var seen uint64
	for {
		fresh, changed := s.wantsAfter(seen)
		for _, w := range fresh {
			seen = w.number
			notify(w.Want)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Store) wantsAfter(seen uint64) (fresh []numberedWant, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.mu.wants.standing {
		if w.number > seen {
			fresh = append(fresh, w)
		}
	}
	return fresh, s.mu.wants.changed
}
