package etcdlease

import (
	"context"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// RenewAll implements [coord.BatchRenewer]. Tenures for which a keepalive is enough take
// part in one round of their lease, all of them before the first keepalive is waited for.
// What needs more, such as a tenure of another Store, is renewed beside, a few at a time.
func (s *Store) RenewAll(ctx context.Context, tenures []coord.Tenure, ttl time.Duration) []coord.Renewal {
	all := make([]coord.Renewal, len(tenures))
	slots := make(chan struct{}, janitorWorkers)
	var alone sync.WaitGroup
	renewAlone := func(i int) {
		alone.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			all[i].Grant, all[i].Err = s.Renew(ctx, tenures[i], ttl)
		})
	}
	parts := s.takeParts(tenures, ttl)
	for i, p := range parts {
		if p.t == nil {
			renewAlone(i)
		}
	}
	for i, p := range parts {
		if p.t == nil {
			continue
		}
		grant, again, err := s.conclude(ctx, p)
		if again {
			renewAlone(i)
			continue
		}
		all[i].Grant, all[i].Err = s.renewed(ctx, tenures[i], grant, err)
	}
	alone.Wait()
	return all
}

// takeParts has the tenures for which that is enough join a round each.
func (s *Store) takeParts(tenures []coord.Tenure, ttl time.Duration) []part {
	parts := make([]part, len(tenures))
	if s.checkOpen() != nil || coord.ValidateTTL(ttl) != nil {
		return parts
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ten := range tenures {
		t := s.mu.tenures[ten.Key]
		if t == nil || t.Tenure != ten || t.lease == nil || t.moving != nil || t.lease.ttl < ttl {
			continue
		}
		if t.lapsesLocked(now); t.over == notOver {
			parts[i] = s.takePartLocked(t, now)
		}
	}
	return parts
}
