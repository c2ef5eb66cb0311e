package compat

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
)

type booking struct {
	ID   int64          `db:"id"`
	Room string         `db:"room"`
	Note sql.NullString `db:"note"`
	At   time.Time      `db:"at"`
}

func TestSqlx(t *testing.T) {
	g := open(t)
	ctx := t.Context()
	db := sqlx.NewDb(g.DB, "sqlite3")
	db.MustExecContext(ctx, "CREATE TABLE bookings (id INTEGER PRIMARY KEY, room TEXT NOT NULL, note TEXT, at DATETIME NOT NULL)")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const insert = "INSERT INTO bookings(room, note, at) VALUES (:room, :note, :at)"
	all := []booking{{Room: "attic", At: at}, {Room: "cellar", Note: sql.NullString{String: "damp", Valid: true}, At: at.AddDate(0, 0, 1)}}
	result, err := db.NamedExecContext(ctx, insert, all)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 2 {
		t.Errorf("%d rows, %v", n, err)
	}

	var one booking
	if err := db.GetContext(ctx, &one, "SELECT * FROM bookings WHERE room = ?", "cellar"); err != nil || one.Note.String != "damp" || !one.At.Equal(all[1].At) {
		t.Errorf("Get: %+v, %v", one, err)
	}
	query, args, err := sqlx.In("SELECT * FROM bookings WHERE room IN (?) ORDER BY id", []string{"attic", "cellar"})
	if err != nil {
		t.Fatal(err)
	}
	var both []booking
	if err := db.SelectContext(ctx, &both, db.Rebind(query), args...); err != nil || len(both) != 2 || both[0].Note.Valid {
		t.Errorf("Select: %+v, %v", both, err)
	}
	named, err := db.PrepareNamedContext(ctx, "SELECT room FROM bookings WHERE id = :id")
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()

	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.NamedExec(insert, booking{Room: "hall", At: at}); err != nil {
		t.Error(err)
	}
	rows, err := tx.Queryx("SELECT * FROM bookings ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; rows.Next(); n++ {
		if err := rows.StructScan(&one); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(rows.Close(), tx.Rollback()); err != nil || n != 3 {
		t.Errorf("%d rows in the transaction, %v", n, err)
	}

	g.wantFenced(t, map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			return db.GetContext(ctx, &one, "SELECT * FROM bookings LIMIT 1")
		},
		"NamedExec": func(ctx context.Context) error { _, err := db.NamedExecContext(ctx, insert, all[0]); return err },
		"named statement": func(ctx context.Context) error {
			var room string
			return named.GetContext(ctx, &room, map[string]any{"id": 1})
		},
	})
	if err := db.GetContext(ctx, &n, "SELECT count(*) FROM bookings"); err != nil || n != 3 {
		t.Errorf("%d rows, want 3: one after the renewal, none behind the fence (%v)", n, err)
	}
}
