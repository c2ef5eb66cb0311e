package etcdlease

import (
	"context"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// WaitForRenewals returns once n renewals of key have joined a round.
func WaitForRenewals(ctx context.Context, s *Store, key coord.Key, n int) {
	s.waitFor(ctx, func() bool {
		t := s.mu.tenures[key]
		return t != nil && t.inUse >= n
	})
}

// WaitSettled returns once no attempt is left to the janitor.
func WaitSettled(ctx context.Context, s *Store) {
	s.waitFor(ctx, func() bool { return len(s.mu.attempts) == 0 })
}

func (s *Store) waitFor(ctx context.Context, condition func() bool) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		s.mu.Lock()
		ok := condition()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Tenures returns how many tenures s knows and how many slots are taken.
func Tenures(s *Store) (tenures, slots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.leases {
		slots += l.slots
	}
	return len(s.mu.tenures), slots
}
