package etcdlease

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// janitorPause is how often the janitor looks when nothing wakes it. No lease
	// is shorter, so none lapses unnoticed for longer.
	janitorPause = 500 * time.Millisecond
	// janitorRetry is the pause after a pass that could not finish its work.
	janitorRetry = 200 * time.Millisecond
	// janitorWorkers bounds the requests of a pass that run at the same time.
	janitorWorkers = 16
)

// wakeJanitor makes the janitor look now. It never blocks.
func (s *Store) wakeJanitor() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// janitor ends what is over and settles what is unclear until the Store closes. It
// sleeps without a timer while there is nothing that could lapse.
func (s *Store) janitor() {
	failing := false
	for {
		var due <-chan time.Time
		stop := func() {}
		if pause, ok := s.nextPass(); ok {
			timer := s.clock.NewTimer(pause)
			due, stop = timer.C(), timer.Stop
		}
		select {
		case <-s.ctx.Done():
			stop()
			return
		case <-due:
		case <-s.wake:
		}
		stop()
		failed, err := s.sweep(s.ctx)
		if err != nil && !failing && s.ctx.Err() == nil {
			s.log.Warn("leases that are over could not be ended yet", zap.Int("leases", failed), zap.Error(err))
		}
		failing = err != nil
		if failing && !s.pause(s.ctx, janitorRetry) {
			return
		}
	}
}

// nextPass returns how long the janitor may sleep, and false if it may sleep until
// it is woken.
func (s *Store) nextPass() (time.Duration, bool) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.tenures) == 0 && len(s.mu.attempts) == 0 {
		return 0, false
	}
	pause := janitorPause
	for _, t := range s.mu.tenures {
		if left := t.until - now; t.inUse == 0 && left > 0 {
			pause = min(pause, left)
		}
	}
	return max(pause, time.Millisecond), true
}

// sweep makes one pass. It returns how much of its work was not done, and the last
// cause.
func (s *Store) sweep(ctx context.Context) (int, error) {
	jobs := s.dueJobs()
	slots := make(chan struct{}, janitorWorkers)
	var wg sync.WaitGroup
	var failed struct {
		sync.Mutex
		count int
		last  error
	}
	for _, job := range jobs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := job(ctx); err != nil {
				failed.Lock()
				failed.count, failed.last = failed.count+1, err
				failed.Unlock()
			}
		})
	}
	wg.Wait()
	return failed.count, failed.last
}

func (s *Store) dueJobs() []func(context.Context) error {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []func(context.Context) error
	for _, a := range s.mu.attempts {
		jobs = append(jobs, func(ctx context.Context) error { return s.abort(ctx, a) })
	}
	for _, t := range s.mu.tenures {
		if t.inUse > 0 {
			continue
		}
		t.lapsesLocked(now)
		if t.over != notOver || t.moving != nil {
			jobs = append(jobs, func(ctx context.Context) error { return s.remove(ctx, t) })
		}
	}
	return jobs
}

// remove settles where t's owner key is and, if t is over, removes it. A lapsed
// tenure whose key somebody else moved to a lease of theirs is theirs.
func (s *Store) remove(ctx context.Context, t *tenure) error {
	for range maxTries {
		s.mu.Lock()
		over, unsure, mod := t.over, t.moving != nil, t.mod
		s.mu.Unlock()
		if unsure {
			if err := s.settleMove(ctx, t); err != nil {
				return err
			}
			continue
		}
		if over == notOver {
			return nil
		}
		owner := s.keys.owner(t.Key)
		cmps, otherwise := s.stands(t), s.readAll(t.Key)
		var resp *clientv3.TxnResponse
		var err error
		if over == lapsed {
			resp, err = s.txn(ctx, append(cmps, modified(owner, mod)), []clientv3.Op{clientv3.OpDelete(owner)}, otherwise)
		} else {
			resp, err = s.removeNoted(ctx, t.Tenure, cmps, otherwise)
		}
		if err != nil {
			return err
		}
		if resp.Succeeded {
			s.drop(t)
			return nil
		}
		snap, err := decodeAll(resp.Responses)
		if err != nil {
			return err
		}
		if !snap.grants(t) || !snap.live() || !s.ours(snap.owner.Lease) {
			s.drop(t)
			return nil
		}
		s.mu.Lock()
		t.mod = snap.owner.ModRevision
		s.mu.Unlock()
	}
	return errContended
}

// removeOver removes the key of this Store's tenure if that is over. It asks etcd
// nothing otherwise.
func (s *Store) removeOver(ctx context.Context, key coord.Key) error {
	t, over, doubtful := s.judge(key)
	if doubtful != nil {
		// If etcd does not answer, neither the tenure nor the call that asks for the
		// key is any further.
		if _, err := s.await(ctx, s.join(doubtful)); err == nil {
			t, over, _ = s.judge(key)
		}
	}
	if !over {
		return nil
	}
	return s.remove(ctx, t)
}

// judge reports whether the tenure of key is over, and the lease to ask about if
// that is open until etcd has answered once more.
func (s *Store) judge(key coord.Key) (t *tenure, over bool, doubtful *sharedLease) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.mu.tenures[key]
	if t == nil {
		return nil, false, nil
	}
	if t.inUse == 0 && !t.lapsesLocked(now) && t.over == notOver && now >= t.until && t.lease != nil {
		doubtful = t.lease
	}
	return t, t.over != notOver, doubtful
}

// supervise keeps an eye on a tenure whose owner key may or may not have moved to
// l, and takes over the slot on l.
func (s *Store) supervise(t *tenure, l *sharedLease, asked time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.mu.tenures[t.Key]
	dropped := t.lease != nil && known != t
	doubled := t.lease == nil && known != nil && known.revision >= t.revision
	if dropped || doubled {
		l.slots-- // the key is gone, or somebody else minds it
		return
	}
	if t.lease == nil {
		t.lease = l
		l.slots++
	}
	if t.moving != nil {
		t.moving.slots--
	}
	t.moving = l
	t.until = max(t.until, asked+l.ttl)
	s.registerLocked(t)
}

// settleMove decides where the owner key is after an unclear move. Writing it
// again as it is changes its mod revision, so that the move cannot happen later.
func (s *Store) settleMove(ctx context.Context, t *tenure) error {
	s.mu.Lock()
	mod := t.mod
	s.mu.Unlock()
	owner := s.keys.owner(t.Key)
	_, err := s.txn(ctx,
		append(s.stands(t), modified(owner, mod)),
		[]clientv3.Op{clientv3.OpPut(owner, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())}, nil)
	if err != nil {
		return err
	}
	snap, err := s.read(ctx, t.Key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.tenures[t.Key] != t {
		return nil
	}
	if !snap.grants(t) || !snap.live() || !s.onKnownLeaseLocked(t, snap.owner.Lease, snap.owner.ModRevision) {
		s.dropLocked(t)
	}
	return nil
}

// onKnownLeaseLocked notes which of t's two leases carries the owner key, and
// reports false if neither does.
func (s *Store) onKnownLeaseLocked(t *tenure, id, mod int64) bool {
	if t.moving == nil {
		return true
	}
	switch id {
	case int64(t.moving.id):
		t.lease.slots--
		t.lease = t.moving
	case int64(t.lease.id):
		t.moving.slots--
	default:
		return false
	}
	t.moving, t.mod = nil, mod
	return true
}
