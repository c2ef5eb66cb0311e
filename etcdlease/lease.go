package etcdlease

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// maxTries bounds how often a call starts over because an etcd lease ended under
// it or another writer came between two of its transactions.
const maxTries = 4

// A sharedLease is one etcd lease with the keys of several tenures on it. Its
// fields below ready are guarded by Store.mu, except that seconds is fixed, and
// that id is fixed once ready is closed.
type sharedLease struct {
	seconds int64         // the TTL that was asked for; 0 if tenures may not join
	ready   chan struct{} // closed when etcd has granted the lease, or not

	id  clientv3.LeaseID
	ttl time.Duration // as etcd granted it
	err error         // why etcd did not grant it

	// slots counts the keys that are on the lease or may be: tenures, placements
	// under way and attempts that are not settled.
	slots int
	// provedAt is when the last successful grant or keepalive was sent, and end is
	// provedAt plus the TTL: the lease lives until then at least.
	provedAt, end time.Duration
	gone          bool

	// unsure is set while a round is in flight, and after one that etcd did not
	// answer until one is answered: meanwhile nobody here knows which of l's keys
	// would have ended by themselves.
	unsure bool

	renewing bool   // a goroutine runs rounds
	next     *round // what callers who ask now will join
}

// wholeSeconds rounds up, so that nobody gets less than was asked for.
func wholeSeconds(ttl time.Duration) int64 {
	return int64((ttl + time.Second - 1) / time.Second)
}

// reserve takes a slot on a lease that etcd has granted, with at least ttl, and
// that will not end at once: one whose remaining time has dwindled is renewed
// first. The caller frees the slot.
func (s *Store) reserve(ctx context.Context, ttl time.Duration) (*sharedLease, error) {
	for range maxTries {
		l, err := s.pick(wholeSeconds(ttl))
		if err != nil {
			return nil, err
		}
		if err = s.confirm(ctx, l); err == nil {
			return l, nil
		}
		s.free(l)
		if !isLeaseGone(err) {
			return nil, err
		}
	}
	return nil, errContended
}

// pick takes a slot on a lease of the TTL, asking etcd for a new lease if none
// has room.
func (s *Store) pick(seconds int64) (*sharedLease, error) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruneLocked(now)
	for _, l := range s.mu.leases {
		ended := l.id != 0 && l.end <= now
		if l.seconds == seconds && !l.gone && !ended && l.slots < s.opts.KeysPerLease {
			l.slots++
			return l, nil
		}
	}
	l := &sharedLease{seconds: seconds, ready: make(chan struct{}), slots: 1}
	if !s.spawnLocked(func() { s.grant(l, seconds) }) {
		return nil, errClosed
	}
	s.mu.leases = append(s.mu.leases, l)
	return l, nil
}

// pruneLocked forgets leases that carry nothing and have ended.
func (s *Store) pruneLocked(now time.Duration) {
	s.mu.leases = slices.DeleteFunc(s.mu.leases, func(l *sharedLease) bool {
		return l.slots == 0 && (l.gone || l.id != 0 && l.end <= now)
	})
}

// grant asks etcd for l. A lease whose grant was not heard of carries nothing and
// ends by itself.
func (s *Store) grant(l *sharedLease, seconds int64) {
	defer close(l.ready)
	sentAt := s.clock.Now()
	ctx, cancel := s.request(s.ctx)
	defer cancel()
	resp, err := s.client.Grant(ctx, seconds)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		l.err, l.gone = err, true
		return
	}
	l.id, l.ttl = resp.ID, time.Duration(resp.TTL)*time.Second
	l.provedAt, l.end = sentAt, sentAt+l.ttl
}

// confirm waits until l can take a key that is about to be written.
func (s *Store) confirm(ctx context.Context, l *sharedLease) error {
	select {
	case <-l.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	now := s.clock.Now()
	s.mu.Lock()
	err, waning := l.err, l.end-now < l.ttl/3
	s.mu.Unlock()
	if err != nil || !waning {
		return err
	}
	_, err = s.await(ctx, s.join(l))
	return err
}

// free gives a slot back.
func (s *Store) free(l *sharedLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.slots--
}

// retire notes that etcd does not know l any more.
func (s *Store) retire(l *sharedLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.gone = true
}

// ours reports whether id is a lease of this Store.
func (s *Store) ours(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.mu.leases, func(l *sharedLease) bool { return int64(l.id) == id })
}

// cover returns a round whose keepalive is sent after since, or nil if l was
// proved alive after since already.
func (s *Store) cover(l *sharedLease, since time.Duration) *round {
	s.mu.Lock()
	covered := l.provedAt >= since
	s.mu.Unlock()
	if covered {
		return nil
	}
	return s.join(l)
}

// revokeIdle revokes the leases that carry nothing. It runs after every goroutine
// of the Store has ended.
func (s *Store) revokeIdle(ctx context.Context) error {
	s.mu.Lock()
	leases := slices.Clone(s.mu.leases)
	s.mu.Unlock()
	var errs []error
	for _, l := range leases {
		if l.slots != 0 || l.gone || l.id == 0 {
			continue
		}
		if _, err := s.client.Revoke(ctx, l.id); err != nil && !isLeaseGone(err) {
			errs = append(errs, err)
			s.log.Warn("an idle etcd lease was not revoked; it ends by itself", zap.String("lease", leaseHex(l.id)), zap.Duration("ttl", l.ttl), zap.Error(err))
		}
	}
	return errors.Join(errs...)
}

// An overReason says why a tenure is over as far as this Store is concerned.
type overReason int

const (
	notOver  overReason = iota
	lapsed              // it was not renewed in time
	released            // its end was asked for
)

// A tenure is one grant that this Store made or took over. The fields below
// value are guarded by Store.mu.
type tenure struct {
	coord.Tenure
	revision int64 // create revision of the owner key
	// value is what the grant wrote to the epoch key, with a nonce that no other grant
	// has. Within one history of etcd the revision says as much.
	value string

	lease *sharedLease // nil before the key is on a lease of this Store
	mod   int64        // mod revision of the owner key as this Store knows it
	// until is when the tenure ends unless it is renewed. The janitor leaves the
	// tenure alone while calls are working on it, which inUse counts.
	until time.Duration
	inUse int
	over  overReason
	// disputes counts the attempts on the key that this Store has concluded. While
	// one is under way, an owner key on the tenure's lease may be the attempt's.
	disputes int
	floor    coord.Epoch // the forgotten floor
	raised   coord.Epoch // fixed, since a key that is held is not raised
	// least is what another Store granted: a move must not shorten it.
	least time.Duration
	// moving is the lease the owner key may be on after an unclear answer.
	moving *sharedLease
}

// lapsesLocked reports whether t was left out of what keeps its lease alive for
// longer than its TTL, and marks it. Not being renewed while etcd answers nobody is
// not being left out.
func (t *tenure) lapsesLocked(now time.Duration) bool {
	if t.over == notOver && t.lease != nil && now >= t.until && !t.doubtfulLocked() {
		t.over = lapsed
	}
	return t.over == lapsed
}

// doubtfulLocked reports whether it is open if t's end, once it has passed, counts.
// It does as soon as etcd has answered a keepalive that was sent after it.
func (t *tenure) doubtfulLocked() bool { return t.lease.unsure && t.lease.provedAt < t.until }

// carryLocked takes every tenure on l over a time in which etcd did not answer: r
// shows that etcd had not ended them, nor anybody renewed their lease meanwhile.
func (s *Store) carryLocked(l *sharedLease, r *round) {
	for _, t := range s.mu.tenures {
		if t.lease == l && t.over == notOver {
			t.until = max(t.until, r.sentAt+r.ttl)
		}
	}
}

// lookup returns the tenure if this Store knows it.
func (s *Store) lookup(t coord.Tenure) *tenure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.mu.tenures[t.Key]; known != nil && known.Tenure == t {
		return known
	}
	return nil
}

// registerLocked makes t the key's latest tenure and takes over the slot on t's
// lease, unless a later tenure is known: answers may be heard in another order
// than etcd gave them.
func (s *Store) registerLocked(t *tenure) {
	old := s.mu.tenures[t.Key]
	switch {
	case old == t:
		return
	case old != nil && old.revision > t.revision:
		t.lease.slots--
		return
	case old != nil:
		s.dropLocked(old)
	}
	s.mu.tenures[t.Key] = t
	if len(s.mu.tenures) == 1 {
		s.wakeJanitor() // it sleeps without a timer while there are none
	}
}

// drop forgets t and frees its slot. Dropping again does nothing.
func (s *Store) drop(t *tenure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(t)
}

func (s *Store) dropLocked(t *tenure) {
	if s.mu.tenures[t.Key] != t {
		return
	}
	delete(s.mu.tenures, t.Key)
	t.lease.slots--
	if t.moving != nil {
		t.moving.slots--
		t.moving = nil
	}
}

// use keeps the janitor from t until the returned function is called.
func (s *Store) use(t *tenure) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.inUse++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.inUse--
	}
}

// end marks t as over unless it is already.
func (s *Store) end(t *tenure, why overReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over == notOver || why == released {
		t.over = why
	}
}
