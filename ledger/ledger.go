package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A Ledger appends to and reads from one tenant's events. It holds nothing but the
// database it was made on and is safe for concurrent use.
//
// Its errors are those of the database: on a guarded one a
// [*coord.FencedError] or a [*coord.OutcomeUnknownError] comes through as it is.
type Ledger struct {
	db  *sql.DB
	key coord.Key
}

// New returns key's ledger on db, which holds the schema that [Create] makes.
func New(db *sql.DB, key coord.Key) *Ledger { return &Ledger{db: db, key: key} }

// An executor is a *sql.DB or a *sql.Tx.
type executor interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// An Appended is the outcome of one append: the event as it is stored, and
// whether it was there before under the same idempotency key.
type Appended struct {
	Event     Event
	Duplicate bool
}

// Append adds e in a transaction of its own; see the package comment for what an
// idempotency key does. Seq and TenantID of e are ignored.
func (l *Ledger) Append(ctx context.Context, e Event) (stored Event, duplicate bool, err error) {
	return l.append(ctx, l.db, e)
}

// AppendTx is Append within tx, which the caller commits. A conflict leaves
// tx usable.
func (l *Ledger) AppendTx(ctx context.Context, tx *sql.Tx, e Event) (stored Event, duplicate bool, err error) {
	return l.append(ctx, tx, e)
}

// AppendBatch adds all of events, in order, or none of them. Any error, a conflict
// included, ends the batch.
func (l *Ledger) AppendBatch(ctx context.Context, events []Event) ([]Appended, error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("append batch: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	all := make([]Appended, 0, len(events))
	for i, e := range events {
		stored, duplicate, err := l.append(ctx, tx, e)
		if err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", i, err)
		}
		all = append(all, Appended{stored, duplicate})
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("append batch: %w", err)
	}
	return all, nil
}

const (
	insertSQL  = `INSERT INTO main.events (tenant_id, ts, actor, kind, subject_id, payload, idem_key) VALUES (?, ?, ?, ?, ?, ?, ?)`
	columns    = `seq, tenant_id, ts, actor, kind, subject_id, payload, coalesce(idem_key, '')`
	byKeySQL   = `SELECT ` + columns + ` FROM main.events WHERE idem_key = ?`
	afterSQL   = `SELECT ` + columns + ` FROM main.events WHERE seq > ? ORDER BY seq LIMIT ?`
	foldSQL    = `SELECT events, last_seq FROM main.ledger_fold WHERE id = 1`
	noLimitSQL = -1
)

// append inserts first and looks afterwards: the database decides whether the key
// exists, so no two appends can both find it missing, and what is found never
// changes.
func (l *Ledger) append(ctx context.Context, db executor, e Event) (Event, bool, error) {
	e, err := e.normalize(l.key.Tenant())
	if err != nil {
		return Event{}, false, err
	}
	idem := sql.NullString{String: e.IdemKey, Valid: e.IdemKey != ""}
	result, err := db.ExecContext(ctx, insertSQL, e.TenantID, e.Time.UnixMilli(), e.Actor, e.Kind, e.SubjectID, string(e.Payload), idem)
	if err == nil {
		e.Seq, err = result.LastInsertId()
		return e, false, err
	}
	if e.IdemKey == "" || !isConstraint(err) {
		return Event{}, false, fmt.Errorf("append: %w", err)
	}
	stored, found := scanEvent(db.QueryRowContext(ctx, byKeySQL, e.IdemKey))
	switch {
	case errors.Is(found, sql.ErrNoRows):
		return Event{}, false, fmt.Errorf("append: %w", err)
	case found != nil:
		return Event{}, false, fmt.Errorf("append: read the event of the idempotency key: %w", found)
	case !stored.sameBody(e):
		return Event{}, false, &coord.Error{Code: coord.CodeIdempotencyConflict, Op: "append", Key: l.key,
			Detail: fmt.Sprintf("the idempotency key belongs to event %d with another body", stored.Seq)}
	}
	return stored, true, nil
}

// Read returns the events after the sequence number after, oldest first, at most
// limit or [MaxRead] of them, whichever is less. A limit of zero means MaxRead.
func (l *Ledger) Read(ctx context.Context, after int64, limit int) ([]Event, error) {
	if limit <= 0 || limit > MaxRead {
		limit = MaxRead
	}
	events := []Event{}
	for e, err := range scanAll(ctx, l.db, after, limit) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Events streams all events after the sequence number after, oldest first, as they
// were when the iteration began. An error is yielded last, with a zero Event. While
// it runs it holds a connection and keeps the write-ahead log from being reset.
func (l *Ledger) Events(ctx context.Context, after int64) iter.Seq2[Event, error] {
	return scanAll(ctx, l.db, after, noLimitSQL)
}

func scanAll(ctx context.Context, db executor, after int64, limit int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		rows, err := db.QueryContext(ctx, afterSQL, after, limit)
		if err != nil {
			yield(Event{}, fmt.Errorf("read events: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			e, err := scanEvent(rows)
			if err != nil {
				yield(Event{}, fmt.Errorf("read events: %w", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Event{}, fmt.Errorf("read events: %w", err))
		}
	}
}

func scanEvent(row interface{ Scan(...any) error }) (Event, error) {
	var e Event
	var ms int64
	var payload string
	err := row.Scan(&e.Seq, &e.TenantID, &ms, &e.Actor, &e.Kind, &e.SubjectID, &payload, &e.IdemKey)
	if err != nil {
		return Event{}, err
	}
	e.Time, e.Payload = time.UnixMilli(ms).UTC(), []byte(payload)
	return e, nil
}

// A Fold is what the events add up to.
type Fold struct {
	Events  int64 // how many there are
	LastSeq int64 // of the newest; 0 if there is none
}

// Fold returns the running fold. It costs the same however many events there are.
func (l *Ledger) Fold(ctx context.Context) (Fold, error) {
	var f Fold
	if err := l.db.QueryRowContext(ctx, foldSQL).Scan(&f.Events, &f.LastSeq); err != nil {
		return Fold{}, fmt.Errorf("read fold: %w", err)
	}
	return f, nil
}
