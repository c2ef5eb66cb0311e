package compat

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/leaseholddb/leasehold/coord"
)

func migrations() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"00001_rooms.sql": file(`-- +goose Up
CREATE TABLE rooms (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO rooms (name) VALUES ('attic'), ('cellar');
-- +goose Down
DROP TABLE rooms;
`),
		"00002_bookings.sql": file(`-- +goose Up
CREATE TABLE bookings (id INTEGER PRIMARY KEY, room INTEGER NOT NULL REFERENCES rooms(id), at DATETIME);
-- +goose StatementBegin
CREATE TRIGGER one_per_day BEFORE INSERT ON bookings BEGIN
  SELECT RAISE(ABORT, 'taken') WHERE EXISTS (SELECT 1 FROM bookings WHERE room = NEW.room AND at = NEW.at);
END;
-- +goose StatementEnd
-- +goose Down
DROP TABLE bookings;
`),
		"00003_index.sql": file(`-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX bookings_at ON bookings(at);
-- +goose Down
DROP INDEX bookings_at;
`),
	}
}

func TestGoose(t *testing.T) {
	g := open(t)
	ctx := t.Context()
	p, err := goose.NewProvider(goose.DialectSQLite3, g.DB, migrations())
	if err != nil {
		t.Fatal(err)
	}
	results, err := p.Up(ctx)
	if err != nil || len(results) != 3 {
		t.Fatalf("Up: %d results, %v", len(results), err)
	}
	if pending, err := p.HasPending(ctx); err != nil || pending {
		t.Errorf("after Up: pending %v, %v", pending, err)
	}
	if _, err := g.ExecContext(ctx, "INSERT INTO bookings(room, at) VALUES (1, '2026-01-02')"); err != nil {
		t.Error(err)
	}
	if _, err := g.ExecContext(ctx, "INSERT INTO bookings(room, at) VALUES (1, '2026-01-02')"); err == nil {
		t.Error("the migration's trigger is not there")
	}
	g.wantFenced(t, map[string]func(context.Context) error{
		"Down": func(ctx context.Context) error { _, err := p.Down(ctx); return err },
	})
	if v, err := p.GetDBVersion(ctx); err != nil || v != 2 {
		t.Errorf("after one Down: version %d, %v", v, err)
	}
	if _, err := p.DownTo(ctx, 0); err != nil {
		t.Errorf("DownTo: %v", err)
	}
}

// A migration that would leave the file fails as a whole, and goose says why.
func TestGooseRefusedMigration(t *testing.T) {
	g := open(t)
	files := migrations()
	files["00004_wrong.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE half(a);\nATTACH ':memory:' AS other;\n")}
	p, err := goose.NewProvider(goose.DialectSQLite3, g.DB, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); !errors.Is(err, coord.CodeSQLRefused) {
		t.Errorf("Up: %v, want %s", err, coord.CodeSQLRefused)
	}
	if v, err := p.GetDBVersion(t.Context()); err != nil || v != 3 {
		t.Errorf("version %d, %v", v, err)
	}
	if _, err := g.ExecContext(t.Context(), "CREATE TABLE half(a)"); err != nil {
		t.Errorf("half a migration stayed: %v", err)
	}
}
