// Package memlease is a [coord.LeaseStore] in the memory of one process, on a
// clock of the caller's choice. Simulations and tests of the packages above run
// on it; it coordinates nothing between processes and forgets everything with
// the process.
package memlease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A Store keeps leases in memory. It is safe for concurrent use and honours the
// contract of [coord.LeaseStore] and [coord.ReleaseWaiter] to the millisecond.
type Store struct {
	clock coord.Clock

	mu struct {
		sync.Mutex
		records  map[coord.Key]*record
		revision coord.Revision
		wants    wants
	}
}

type record struct {
	owner     string
	epoch     coord.Epoch
	revision  coord.Revision
	granted   time.Time
	until     time.Duration // on the store's clock
	over      bool          // released
	forgotten coord.Epoch
	changed   chan struct{} // closed and replaced whenever the record changes
	trail     []coord.AuditEntry
}

var (
	_ coord.LeaseStore    = (*Store)(nil)
	_ coord.ReleaseWaiter = (*Store)(nil)
	_ coord.Auditor       = (*Store)(nil)
	_ coord.WantStore     = (*Store)(nil)
)

// New returns an empty store that counts leases on clock.
func New(clock coord.Clock) *Store {
	s := &Store{clock: clock}
	s.mu.records = make(map[coord.Key]*record)
	s.mu.wants.changed = make(chan struct{})
	return s
}

// Read implements [coord.LeaseStore].
func (s *Store) Read(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	if err := usable(ctx, key.Validate()); err != nil {
		return coord.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.records[key]
	if r == nil {
		return coord.Record{}, false, nil
	}
	return s.describe(key, r), true, nil
}

// Acquire implements [coord.LeaseStore].
func (s *Store) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	if err := usable(ctx, key.Validate(), coord.ValidateOwner(owner), coord.ValidateTTL(ttl)); err != nil {
		return coord.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.records[key]
	if r == nil {
		r = &record{changed: make(chan struct{}), over: true}
		s.mu.records[key] = r
	}
	if s.held(r) {
		return coord.Grant{}, &coord.LeaseHeldError{Record: s.describe(key, r)}
	}
	s.mu.revision++
	r.owner, r.epoch, r.revision, r.over = owner, r.epoch+1, s.mu.revision, false
	r.granted = s.clock.Wall()
	s.note(r, coord.AuditAcquire)
	return s.extendLocked(key, r, ttl), nil
}

// Renew implements [coord.LeaseStore].
func (s *Store) Renew(ctx context.Context, tenure coord.Tenure, ttl time.Duration) (coord.Grant, error) {
	if err := usable(ctx, tenure.Validate(), coord.ValidateTTL(ttl)); err != nil {
		return coord.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.records[tenure.Key]
	if !s.current(r, tenure) || !s.held(r) {
		return coord.Grant{}, lost("renew", tenure.Key)
	}
	s.note(r, coord.AuditRenew)
	return s.extendLocked(tenure.Key, r, ttl), nil
}

// Release implements [coord.LeaseStore].
func (s *Store) Release(ctx context.Context, tenure coord.Tenure) error {
	if err := usable(ctx, tenure.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.records[tenure.Key]
	if !s.current(r, tenure) {
		return lost("release", tenure.Key)
	}
	if s.held(r) {
		s.note(r, coord.AuditRelease)
	}
	if !r.over {
		r.over, r.until = true, min(r.until, s.clock.Now())
		r.signal()
	}
	return nil
}

// MarkForgotten implements [coord.LeaseStore].
func (s *Store) MarkForgotten(ctx context.Context, tenure coord.Tenure) (coord.Epoch, error) {
	if err := usable(ctx, tenure.Validate()); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.records[tenure.Key]
	if !s.current(r, tenure) || !s.held(r) {
		return 0, lost("forget", tenure.Key)
	}
	if r.forgotten < r.epoch {
		r.forgotten = r.epoch
		s.note(r, coord.AuditForget)
	}
	return r.forgotten, nil
}

// Audit implements [coord.Auditor]. It forgets nothing.
func (s *Store) Audit(ctx context.Context, key coord.Key) ([]coord.AuditEntry, error) {
	if err := usable(ctx, key.Validate()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.mu.records[key]; r != nil {
		return slices.Clone(r.trail), nil
	}
	return nil, nil
}

func (s *Store) note(r *record, op coord.AuditOp) {
	r.trail = append(r.trail, coord.AuditEntry{Op: op, Owner: r.owner, Epoch: r.epoch, At: s.clock.Wall()})
}

// WaitReleased implements [coord.ReleaseWaiter].
func (s *Store) WaitReleased(ctx context.Context, key coord.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	for {
		free, changed, rest := s.watch(key)
		if free {
			return nil
		}
		timer := s.clock.NewTimer(rest)
		select {
		case <-changed:
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

func (s *Store) watch(key coord.Key) (free bool, changed <-chan struct{}, rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.records[key]
	if r == nil || !s.held(r) {
		return true, nil, 0
	}
	return false, r.changed, r.until - s.clock.Now()
}

func (s *Store) held(r *record) bool { return !r.over && s.clock.Now() < r.until }

func (s *Store) current(r *record, t coord.Tenure) bool {
	return r != nil && r.owner == t.Owner && r.epoch == t.Epoch
}

func (s *Store) extendLocked(key coord.Key, r *record, ttl time.Duration) coord.Grant {
	// A shorter TTL in a renewal must not take back what was granted before.
	r.until = max(r.until, s.clock.Now()+ttl)
	r.signal()
	return coord.Grant{
		Tenure:   coord.Tenure{Key: key, Owner: r.owner, Epoch: r.epoch},
		Revision: r.revision, TTL: ttl, LeaseUntil: s.wall(r.until), ForgottenAt: r.forgotten,
	}
}

func (s *Store) describe(key coord.Key, r *record) coord.Record {
	return coord.Record{
		Key: key, Owner: r.owner, Epoch: r.epoch, Revision: r.revision,
		Held: s.held(r), LeaseUntil: s.wall(r.until), GrantedAt: r.granted, ForgottenAt: r.forgotten,
	}
}

func (s *Store) wall(t time.Duration) time.Time { return s.clock.Wall().Add(t - s.clock.Now()) }

func (r *record) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func usable(ctx context.Context, problems ...error) error {
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Err: err}
	}
	return nil
}

func lost(op string, key coord.Key) error {
	return &coord.Error{Code: coord.CodeLeaseLost, Op: op, Key: key, Detail: "the store knows no such live tenure"}
}
