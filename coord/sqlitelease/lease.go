package sqlitelease

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A row is the record of one key.
type row struct {
	owner     string
	epoch     coord.Epoch
	revision  coord.Revision
	boot      string
	until     time.Duration
	ttl       time.Duration
	released  bool
	forgotten coord.Epoch
	address   string
	granted   int64 // ms
}

const selectRow = `SELECT owner, epoch, revision, boot, until, ttl, released, forgotten, address, granted FROM lease WHERE key = ?`

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// find returns the record of key, nil if there is none.
func find(ctx context.Context, q querier, key coord.Key) (*row, error) {
	var r row
	err := q.QueryRowContext(ctx, selectRow, key.String()).Scan(
		&r.owner, &r.epoch, &r.revision, &r.boot, &r.until, &r.ttl, &r.released, &r.forgotten, &r.address, &r.granted)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

func (r *row) is(t coord.Tenure) bool { return r != nil && r.owner == t.Owner && r.epoch == t.Epoch }

// left returns how much of r's lease is left, which is all of it if its end was
// read on another boot's clock.
func (s *Store) left(r *row) time.Duration {
	switch {
	case r.released:
		return 0
	case r.boot != s.opts.Boot:
		return r.ttl
	}
	return r.until - s.clock.Now()
}

func (s *Store) describe(key coord.Key, r *row) coord.Record {
	left := s.left(r)
	until := left
	if r.released && r.boot == s.opts.Boot {
		until = r.until - s.clock.Now() // when it was released
	}
	return coord.Record{
		Key: key, Owner: r.owner, Epoch: r.epoch, Revision: r.revision, Held: left > 0,
		LeaseUntil: s.clock.Wall().Add(until), GrantedAt: time.UnixMilli(r.granted), ForgottenAt: r.forgotten, Address: r.address,
	}
}

// within runs f on the record of key, nil if there is none, in a transaction. The
// clock stands between the lock and the answer: a lease of another boot is counted
// on this one's clock from now on.
func (s *Store) within(ctx context.Context, op string, key coord.Key, f func(context.Context, *sql.Conn, *row) error) error {
	var refused error
	err := s.update(ctx, func(ctx context.Context, tx *sql.Conn) error {
		r, err := find(ctx, tx, key)
		if err == nil && r != nil && r.boot != s.opts.Boot {
			r.boot, r.until = s.opts.Boot, s.clock.Now()+r.ttl
			_, err = tx.ExecContext(ctx, "UPDATE lease SET boot = ?, until = ? WHERE key = ?", r.boot, r.until, key.String())
		}
		if err != nil {
			return err
		}
		err = f(ctx, tx, r)
		if coord.CodeOf(err) != "" {
			refused, err = err, nil // a refusal keeps what the transaction has seen
		}
		return err
	})
	return errors.Join(fail(ctx, op, key, err), refused)
}

// Read implements [coord.LeaseStore].
func (s *Store) Read(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	if err := key.Validate(); err != nil {
		return coord.Record{}, false, err
	}
	var r *row
	err := s.retry(ctx, func() (err error) {
		r, err = find(ctx, s.db, key)
		return err
	})
	if err != nil || r == nil {
		return coord.Record{}, false, fail(ctx, "read", key, err)
	}
	return s.describe(key, r), true, nil
}

// Acquire implements [coord.LeaseStore].
func (s *Store) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (g coord.Grant, err error) {
	if err := firstOf(key.Validate(), coord.ValidateOwner(owner), coord.ValidateTTL(ttl)); err != nil {
		return g, err
	}
	err = s.within(ctx, "acquire", key, func(ctx context.Context, tx *sql.Conn, r *row) error {
		if r != nil && s.left(r) > 0 {
			return &coord.LeaseHeldError{Record: s.describe(key, r)}
		}
		if r == nil {
			r = &row{}
		}
		next := row{
			owner: owner, epoch: r.epoch + 1, boot: s.opts.Boot, until: s.clock.Now() + ttl, ttl: ttl, forgotten: r.forgotten,
		}
		if err := tx.QueryRowContext(ctx, "SELECT latest + 1 FROM revision").Scan(&next.revision); err != nil {
			return err
		}
		query := `UPDATE lease SET owner = ?2, epoch = ?3, revision = ?4, boot = ?5, until = ?6, ttl = ?7, address = ?8, granted = ?9, at = ?9, released = 0 WHERE key = ?1`
		if next.epoch == 1 {
			query = `INSERT INTO lease(key, owner, epoch, revision, boot, until, ttl, address, granted, at, released) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, 0)`
		}
		_, err := tx.ExecContext(ctx, query, key.String(), owner, next.epoch, next.revision, next.boot, next.until, ttl, s.opts.Address, s.now())
		g = s.grant(key, &next)
		return err
	})
	return orNothing(g, err)
}

// Renew implements [coord.LeaseStore].
func (s *Store) Renew(ctx context.Context, t coord.Tenure, ttl time.Duration) (g coord.Grant, err error) {
	if err := firstOf(t.Validate(), coord.ValidateTTL(ttl)); err != nil {
		return g, err
	}
	err = s.within(ctx, "renew", t.Key, func(ctx context.Context, tx *sql.Conn, r *row) error {
		if !r.is(t) || s.left(r) <= 0 {
			return lost("renew", t.Key)
		}
		// A shorter TTL must not take back what was granted before.
		if until := s.clock.Now() + ttl; until > r.until {
			r.until = until
		}
		_, err := tx.ExecContext(ctx, "UPDATE lease SET until = ?, ttl = max(ttl, ?), at = ? WHERE key = ?", r.until, ttl, s.now(), t.Key.String())
		r.ttl = ttl
		g = s.grant(t.Key, r)
		return err
	})
	return orNothing(g, err)
}

// Release implements [coord.LeaseStore].
func (s *Store) Release(ctx context.Context, t coord.Tenure) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return s.within(ctx, "release", t.Key, func(ctx context.Context, tx *sql.Conn, r *row) error {
		switch {
		case !r.is(t):
			return lost("release", t.Key)
		case s.left(r) <= 0:
			return nil
		}
		_, err := tx.ExecContext(ctx, "UPDATE lease SET released = 1, until = ?, at = ? WHERE key = ?", s.clock.Now(), s.now(), t.Key.String())
		return err
	})
}

// MarkForgotten implements [coord.LeaseStore].
func (s *Store) MarkForgotten(ctx context.Context, t coord.Tenure) (coord.Epoch, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	err := s.within(ctx, "forget", t.Key, func(ctx context.Context, tx *sql.Conn, r *row) error {
		switch {
		case !r.is(t) || s.left(r) <= 0:
			return lost("forget", t.Key)
		case r.forgotten == t.Epoch:
			return nil
		}
		_, err := tx.ExecContext(ctx, "UPDATE lease SET forgotten = ?, at = ? WHERE key = ?", t.Epoch, s.now(), t.Key.String())
		return err
	})
	if err != nil {
		return 0, err
	}
	return t.Epoch, nil
}

func (s *Store) now() int64 { return s.clock.Wall().UnixMilli() }

func (s *Store) grant(key coord.Key, r *row) coord.Grant {
	return coord.Grant{
		Tenure: coord.Tenure{Key: key, Owner: r.owner, Epoch: r.epoch}, Revision: r.revision, TTL: r.ttl,
		LeaseUntil: s.clock.Wall().Add(r.until - s.clock.Now()), ForgottenAt: r.forgotten,
	}
}

func orNothing(g coord.Grant, err error) (coord.Grant, error) {
	if err != nil {
		return coord.Grant{}, err
	}
	return g, nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
