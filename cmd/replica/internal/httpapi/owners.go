package httpapi

import (
	"net/http"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// ownerMemory is how long an owner that answered is asked again without asking the
	// lease store first.
	ownerMemory = time.Second
	// maxOwners bounds how many are remembered.
	maxOwners = 10_000
)

// owners remembers which replicas have just answered for which tenants, so that a
// stream of requests for a tenant does not ask the lease store for each. Memory may be
// wrong and does no harm: a replica serves nothing that it does not own, and one that
// refuses or does not answer is forgotten, and the lease store asked.
type owners struct {
	mu struct {
		sync.Mutex
		seen map[coord.Key]seenOwner
	}
}

type seenOwner struct {
	record coord.Record
	at     time.Time
}

// remember is for an owner that has answered.
func (o *owners) remember(record coord.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.seen == nil || len(o.mu.seen) >= maxOwners {
		o.mu.seen = make(map[coord.Key]seenOwner) // simpler than to choose, and costs one read for each
	}
	o.mu.seen[record.Key] = seenOwner{record, time.Now()}
}

func (o *owners) forget(key coord.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.seen, key)
}

func (o *owners) recall(key coord.Key) (coord.Record, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, ok := o.mu.seen[key]
	if ok && time.Since(seen.at) > ownerMemory {
		delete(o.mu.seen, key)
		return coord.Record{}, false
	}
	return seen.record, ok
}

// recalled returns a [*coord.LeaseHeldError] if the request may go to a remembered
// owner. One that gives a tenant up, or asks who the owner is, wants to know exactly.
func (s *Server) recalled(r *http.Request, v visit) error {
	if !v.wants.opens() || r.Header.Get(HeaderForward) == ForwardNever || s.router.HandleOf(v.key) != nil {
		return nil
	}
	record, ok := s.owners.recall(v.key)
	if !ok || s.forward.vigil.isKnownSilent(record) {
		return nil
	}
	return &coord.LeaseHeldError{Record: record}
}
