package sqlitelease

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// WaitReleased implements [coord.ReleaseWaiter] by looking every [Options.Poll] of
// real time. While the file cannot be read it goes on trying.
func (s *Store) WaitReleased(ctx context.Context, key coord.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	ticker := time.NewTicker(s.opts.Poll)
	defer ticker.Stop()
	for {
		free, err := s.free(ctx, key)
		switch {
		case free:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, coord.CodeLeaseStoreUnavailable) || errors.Is(err, sql.ErrConnDone):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Store) free(ctx context.Context, key coord.Key) (bool, error) {
	r, err := find(ctx, s.db, key)
	if err != nil {
		return false, fail(ctx, "wait", key, err)
	}
	if r != nil && !r.released && r.boot != s.opts.Boot {
		// Its time begins when somebody of this boot sees it.
		err = s.within(ctx, "wait", key, func(_ context.Context, _ *sql.Conn, now *row) error {
			r = now
			return nil
		})
	}
	return err == nil && (r == nil || s.left(r) <= 0), err
}

// Audit implements [coord.Auditor]. It keeps all entries but the oldest renewals.
func (s *Store) Audit(ctx context.Context, key coord.Key) ([]coord.AuditEntry, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	trail, err := s.audit(ctx, key)
	return trail, fail(ctx, "audit", key, err)
}

func (s *Store) audit(ctx context.Context, key coord.Key) (trail []coord.AuditEntry, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT op, owner, epoch, at FROM audit WHERE key = ? ORDER BY id", key.String())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e coord.AuditEntry
		var at int64
		if err := rows.Scan(&e.Op, &e.Owner, &e.Epoch, &at); err != nil {
			return nil, err
		}
		e.At = time.UnixMilli(at)
		trail = append(trail, e)
	}
	return trail, rows.Err()
}
