package etcdlease

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The first pause before a failed keepalive is sent again; later ones are twice
// as long each.
const retryPause = 20 * time.Millisecond

// A round waits for more renewals before its keepalive is sent, a small part of the
// TTL and this long at most, unless somebody in it is in a hurry. The replica's
// tenants renew at about the same time, and one keepalive then serves them all.
const maxGather = 100 * time.Millisecond

// A round is one successful keepalive of a shared lease, or none, on behalf of
// everyone who joined before it was sent. Callers that come while a round is in
// flight join the next one, because what is in flight was sent before they asked.
type round struct {
	done chan struct{} // closed when the fields below are final

	// Guarded by Store.mu until the round starts.
	wantKeys bool
	hurry    chan struct{} // closed when the round must not wait any longer
	hurried  bool

	sentAt time.Duration
	ttl    time.Duration       // as etcd answered
	keys   map[string]struct{} // the etcd keys on the lease, read after the round began, if wanted
	err    error               // errLeaseGone if etcd does not know the lease
}

// join returns a round of l that has not begun and begins at once.
func (s *Store) join(l *sharedLease) *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.nextLocked(l)
	r.hurryLocked()
	s.startLocked(l, r)
	return r
}

// joinLocked is join for the renewal of a tenure that ends in left.
func (s *Store) joinLocked(l *sharedLease, left time.Duration) *round {
	r := s.nextLocked(l)
	r.wantKeys = true
	if left < l.ttl/2 {
		r.hurryLocked()
	}
	s.startLocked(l, r)
	return r
}

func (s *Store) nextLocked(l *sharedLease) *round {
	if l.next == nil {
		l.next = &round{done: make(chan struct{}), hurry: make(chan struct{})}
	}
	return l.next
}

func (r *round) hurryLocked() {
	if !r.hurried {
		r.hurried = true
		close(r.hurry)
	}
}

func (s *Store) startLocked(l *sharedLease, r *round) {
	if !l.renewing {
		l.renewing = s.spawnLocked(func() { s.runRounds(l) })
	}
	if !l.renewing {
		l.next = nil
		r.err = errClosed
		close(r.done)
	}
}

// gather waits until r may begin.
func (s *Store) gather(l *sharedLease, r *round) {
	select {
	case <-r.hurry:
		return
	default:
	}
	timer := s.clock.NewTimer(min(l.ttl/50, maxGather))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-r.hurry:
	case <-s.ctx.Done():
	}
}

// await waits for r and returns what became of it.
func (s *Store) await(ctx context.Context, r *round) (*round, error) {
	select {
	case <-r.done:
		return r, r.err
	case <-ctx.Done():
	}
	select {
	case <-r.done: // too, while its part of several waited for another's
		return r, r.err
	default:
		return nil, ctx.Err()
	}
}

// runRounds runs rounds of l, one after the other, while somebody waits for one.
func (s *Store) runRounds(l *sharedLease) {
	for {
		s.mu.Lock()
		r := l.next
		if r == nil {
			l.renewing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.gather(l, r)
		s.mu.Lock()
		l.next = nil
		silent := l.unsure // the round before this one was not answered
		l.unsure = true
		s.mu.Unlock()
		s.runRound(l, r)
		s.mu.Lock()
		switch {
		case r.err == nil:
			l.unsure = false
			if silent {
				s.carryLocked(l, r)
			}
			l.provedAt = r.sentAt
			l.end = max(l.end, r.sentAt+r.ttl)
		case isLeaseGone(r.err):
			l.gone, l.unsure = true, false
		}
		s.mu.Unlock()
		close(r.done)
	}
}

// runRound keeps l alive and, in parallel, reads which keys it carries. Both must
// succeed.
func (s *Store) runRound(l *sharedLease, r *round) {
	ctx, cancel := s.request(s.ctx)
	defer cancel()
	var keysErr error
	listed := make(chan struct{})
	if r.wantKeys {
		go func() {
			defer close(listed)
			r.keys, keysErr = s.attached(ctx, l.id)
		}()
	} else {
		close(listed)
	}
	r.sentAt, r.ttl, r.err = s.keepAlive(ctx, l.id)
	if r.err != nil {
		cancel()
	}
	<-listed
	if r.err == nil {
		r.err = keysErr
	}
}

// keepAlive sends keepalives until one is answered or ctx ends, and returns when
// the answered one was sent. A stream whose token has expired is given up like one
// that failed; the next one is opened with a new token, if the password still holds.
func (s *Store) keepAlive(ctx context.Context, id clientv3.LeaseID) (sentAt, ttl time.Duration, err error) {
	pause := retryPause
	for try := 0; ; try++ {
		sentAt = s.clock.Now()
		ttl, err = s.keepAliveOnce(ctx, id, s.patience(try))
		if err == nil || isLeaseGone(err) || !unclear(err) && !staleToken(err) {
			return sentAt, ttl, err
		}
		if ctx.Err() != nil || !s.pause(ctx, pause) {
			return sentAt, 0, err
		}
		pause *= 2
	}
}

// patience is how long a try of a keepalive may take. A member that accepts and never
// answers leaves time to ask another one twice: the client takes connections in turn,
// and others take theirs in between. The last try is long enough for an etcd that is
// merely slow.
func (s *Store) patience(try int) time.Duration {
	if try < 2 {
		return s.opts.RequestTimeout / 4
	}
	return s.opts.RequestTimeout / 2
}

// attached returns the etcd keys on a lease.
func (s *Store) attached(ctx context.Context, id clientv3.LeaseID) (map[string]struct{}, error) {
	pause := retryPause
	for try := 0; ; try++ {
		resp, err := s.attachedOnce(ctx, id, s.patience(try))
		if err == nil {
			if resp.TTL <= 0 && len(resp.Keys) == 0 {
				return nil, errLeaseGone
			}
			if err := s.suspect(ctx, resp.ResponseHeader); err != nil {
				return nil, err
			}
			keys := make(map[string]struct{}, len(resp.Keys))
			for _, k := range resp.Keys {
				keys[string(k)] = struct{}{}
			}
			return keys, nil
		}
		if isLeaseGone(err) || !unclear(err) || ctx.Err() != nil || !s.pause(ctx, pause) {
			return nil, err
		}
		pause *= 2
	}
}

func (s *Store) attachedOnce(ctx context.Context, id clientv3.LeaseID, limit time.Duration) (*clientv3.LeaseTimeToLiveResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.client.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
}
