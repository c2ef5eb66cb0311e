package fencing_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

func refusedStatements(dir string) []string {
	escape := filepath.Join(dir, "escaped.db")
	return []string{
		"ATTACH '" + escape + "' AS other", "/* c */ ; ATTACH DATABASE '" + escape + "' AS other",
		"ATTACH ':memory:' AS other", "DETACH main", "VACUUM", "VACUUM INTO '" + escape + "'",
		"vacuum main into '" + escape + "'",
		"SELECT load_extension('x')", "SELECT LOAD_EXTENSION('x', 'y')",
		"PRAGMA journal_mode = DELETE", "PRAGMA main.journal_mode(delete)", "PRAGMA JOURNAL_MODE=''",
		"PRAGMA journal_mode=\"\"", "PRAGMA journal_mode = WAL", "PRAGMA/**/journal_mode=''",
		"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA writable_schema = 1", "PRAGMA writable_schema=ON",
		"PRAGMA user_version = 9", "PRAGMA main.user_version=''", "PRAGMA user_version ; PRAGMA user_version=''",
		"PRAGMA application_id = 9", "PRAGMA query_only = 0", "PRAGMA query_only=''",
		"PRAGMA synchronous = OFF", "PRAGMA ignore_check_constraints = 1",
		"PRAGMA recursive_triggers = 1", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_autocheckpoint = 0",
		"PRAGMA temp_store_directory = '" + dir + "'", "PRAGMA busy_timeout = 0", "PRAGMA schema_version = 3",
		"PRAGMA mmap_size = 1", "PRAGMA auto_vacuum = 1", "PRAGMA incremental_vacuum", "PRAGMA trusted_schema = 1",
		"PRAGMA no_such_pragma", "SELECT * FROM pragma_journal_mode", "EXPLAIN ATTACH 'x' AS other",
		"DROP TABLE kept", "DROP TRIGGER keeper", "DROP INDEX kept_v", "ALTER TABLE kept RENAME TO gone",
		"ALTER TABLE main.Kept ADD COLUMN w", "CREATE TRIGGER g BEFORE INSERT ON kept BEGIN SELECT RAISE(IGNORE); END",
		"CREATE TEMP TRIGGER g BEFORE INSERT ON kept BEGIN SELECT RAISE(IGNORE); END",
	}
}

// ways run one statement each.
var ways = map[string]func(db *sql.DB, query string) error{
	"Exec":  func(db *sql.DB, q string) error { return noResult(db.Exec(q)) },
	"Query": func(db *sql.DB, q string) error { return drain(db.Query(q)) },
	"Prepare": func(db *sql.DB, q string) error {
		s, err := db.Prepare(q)
		if err != nil {
			return err
		}
		return errors.Join(noResult(s.Exec()), s.Close())
	},
	"several statements": func(db *sql.DB, q string) error { return noResult(db.Exec("SELECT 1; " + q)) },
	"Raw": func(db *sql.DB, q string) error {
		return withConn(db, func(c *sql.Conn) error {
			return c.Raw(func(dc any) error { return second(dc.(driver.ExecerContext).ExecContext(bg, q, nil)) })
		})
	},
	"transaction": func(db *sql.DB, q string) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		return noResult(tx.Exec(q))
	},
}

func second(_ driver.Result, err error) error { return err }

func drain(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

// GU-5, trap 53.
func TestGuardRefusesToLeaveTheFile(t *testing.T) {
	gate := newTestGate()
	d := openGuarded(t, gate, &fencing.DatabaseOptions{Protected: []string{"Kept", "kept_v", "keeper"}})
	dir := filepath.Dir(d.Path())
	// Protected objects are made before consumers come; here a trigger on one is
	// refused already, so make it on another table.
	mustExec(t, d.DB(), "CREATE TABLE kept(id INTEGER PRIMARY KEY, v TEXT)")
	mustExec(t, d.DB(), "CREATE INDEX kept_v ON kept(v)")
	mustExec(t, d.DB(), "CREATE TABLE free(v)")
	mustExec(t, d.DB(), "CREATE TRIGGER keeper AFTER INSERT ON free BEGIN SELECT 1; END")
	before := filesIn(t, dir)
	t.Chdir(t.TempDir())
	for _, query := range refusedStatements(dir) {
		for way, run := range ways {
			err := run(d.DB(), query)
			harmless := way == "Prepare" && isTail(query) || way == "transaction" && err != nil && strings.Contains(err.Error(), "cannot VACUUM")
			if !harmless && !errors.Is(err, coord.CodeSQLRefused) {
				t.Errorf("%s by %s: %v", query, way, err)
			}
		}
	}
	for name := range filesIn(t, dir) {
		if !before[name] {
			t.Errorf("a file %s appeared", name)
		}
	}
	if files := filesIn(t, "."); len(files) > 0 {
		t.Errorf("files appeared in the working directory: %v", files)
	}
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "locking_mode": "normal", "user_version": "0", "application_id": "0",
		"synchronous": "2", "foreign_keys": "1", "query_only": "0", "writable_schema": "0",
	} {
		var got string
		if err := d.DB().QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("PRAGMA %s is %q (%v), want %q", pragma, got, err, want)
		}
	}
	mustExec(t, d.DB(), "INSERT INTO kept(v) VALUES ('x')")
	if err := d.Image(bg, filepath.Join(dir, "image.db")); err != nil {
		t.Errorf("Image: %v", err)
	}
}

// isTail says that the driver compiles only the first statement of text, so that
// preparing never reaches the one to refuse.
func isTail(query string) bool {
	return strings.Contains(query, ";") && !strings.Contains(query, "BEGIN")
}

func TestGuardAllowsOrdinarySQL(t *testing.T) {
	d := openGuarded(t, newTestGate(), &fencing.DatabaseOptions{Protected: []string{"kept"}})
	for _, query := range []string{
		"CREATE TABLE kept(id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO kept(v) VALUES ('a')",
		"CREATE TABLE other(id INTEGER PRIMARY KEY, v TEXT)", "CREATE TRIGGER tr AFTER INSERT ON other BEGIN SELECT 1; END",
		"ALTER TABLE other ADD COLUMN w", "CREATE INDEX kept_v ON kept(v)", "CREATE VIEW w AS SELECT * FROM kept",
		"CREATE VIRTUAL TABLE f USING fts3(body)", "INSERT INTO f(body) VALUES ('words')", "CREATE VIRTUAL TABLE r USING rtree(id, a, b)",
		"PRAGMA table_info(kept)", "PRAGMA main.foreign_key_check", "PRAGMA integrity_check", "PRAGMA journal_mode;",
		"pragma user_version", "PRAGMA main.application_id", "PRAGMA defer_foreign_keys = ON", "PRAGMA optimize",
		"ANALYZE", "REINDEX", "CREATE TEMP TABLE scratch(a)", "SELECT * FROM pragma_table_info('kept')",
		"SELECT json_extract('{\"a\":1}', '$.a')", "DROP TABLE other", "DROP INDEX kept_v", "DROP TABLE f", "DROP TABLE r",
	} {
		if err := drain(d.DB().Query(query)); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// Trap 44: every connection has the same settings and hooks, whichever the pool
// makes.
func TestGuardEveryConnectionIsTheSame(t *testing.T) {
	gate := newTestGate()
	d := openGuarded(t, gate, nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	for i := range 8 {
		c, err := d.DB().Conn(bg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000",
		} {
			var got string
			if err := c.QueryRowContext(bg, "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("connection %d: PRAGMA %s is %q (%v), want %q", i, pragma, got, err, want)
			}
		}
		_, err = c.ExecContext(bg, "ATTACH ':memory:' AS m")
		wantCode(t, fmt.Sprintf("ATTACH on connection %d", i), err, coord.CodeSQLRefused)
		gate.closeAfter(1)
		_, err = c.ExecContext(bg, insertRow)
		wantGateError(t, fmt.Sprintf("insert on connection %d", i), err)
		gate.open()
	}
}

// Whoever rebuilds a table switches foreign keys off around it. All connections of
// the handle follow, so that it does not matter which one the pool picks; those of
// other handles do not.
func TestGuardForeignKeysBelongToTheHandle(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE parent(id INTEGER PRIMARY KEY); CREATE TABLE child(p REFERENCES parent(id) ON DELETE CASCADE)")
	mustExec(t, d.DB(), "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1)")
	var conns []*sql.Conn
	for range 3 {
		c, err := d.DB().Conn(bg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	other := d.Scoped(nil)
	defer other.Close()
	enforced := func(db execer) (n int) {
		t.Helper()
		if err := db.QueryRowContext(bg, "PRAGMA foreign_keys").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	set, err := conns[1].PrepareContext(bg, "PRAGMA foreign_keys = OFF")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for i, off := range []func() error{
		func() error { return noResult(conns[0].ExecContext(bg, "PRAGMA foreign_keys = OFF")) },
		func() error { return noResult(d.DB().Exec("pragma Foreign_Keys(0)")) },
		func() error { return drain(d.DB().Query("PRAGMA foreign_keys=''")) },
		func() error { _ = noResult(d.DB().Exec("PRAGMA foreign_keys=0; SELEC 1")); return nil },
		func() error { return noResult(set.Exec()) },
		func() error { return noResult(set.Exec()) }, // which compiles nothing
	} {
		if err := off(); err != nil {
			t.Fatal(err)
		}
		if a, b, c, o := enforced(conns[0]), enforced(conns[2]), enforced(d.DB()), enforced(other); a+b+c != 0 || o != 1 {
			t.Errorf("switched off in way %d: %d %d %d, and %d on another handle", i, a, b, c, o)
		}
		mustExec(t, conns[2], "PRAGMA foreign_keys = ON")
		if enforced(conns[0])+enforced(conns[1])+enforced(d.DB()) != 3 {
			t.Errorf("not switched on again after way %d", i)
		}
	}
	mustExec(t, conns[0], "PRAGMA foreign_keys = OFF")
	mustExec(t, d.DB(), "DROP TABLE parent")
	if n := count(t, d.DB(), "child"); n != 1 {
		t.Errorf("%d rows left of the referring table", n)
	}
	tx, err := conns[1].BeginTx(bg, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "PRAGMA foreign_keys = ON") // has no effect in a transaction, as ever
	if err := tx.Commit(); err != nil || enforced(d.DB()) != 0 {
		t.Errorf("switched on inside a transaction (%v)", err)
	}
}

// A read-only transaction cannot write, whatever is said in it, and leaves nothing
// behind on its connection.
func TestGuardReadOnlyTransaction(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	d.DB().SetMaxOpenConns(1)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		tx, err := d.DB().BeginTx(bg, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{insertRow, insertRow + " RETURNING id", "CREATE TABLE u(a)", "DROP TABLE t", "DELETE FROM t"} {
			if message, ok := fencing.SQLErrorOf(drain(tx.Query(query))); !ok {
				t.Errorf("%s in a read-only transaction: %q", query, message)
			}
		}
		wantCode(t, "query_only off", noResult(tx.Exec("PRAGMA query_only = 0")), coord.CodeSQLRefused)
		if n := count(t, tx, "t"); n != 0 {
			t.Errorf("%d rows were written", n)
		}
		if err := end(tx); err != nil {
			t.Error(err)
		}
		mustExec(t, d.DB(), insertRow)
		mustExec(t, d.DB(), "DELETE FROM t")
	}
}

// Trap 61: a path is a path.
func TestOpenDatabasePaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a?mode=memory", "b#c", "d%2e%2e", "e%", "f g", "h&_query_only=1", "i?_journal_mode=OFF", "j\xff", "k\nl", "m;n", "file:o"} {
		d, err := fencing.OpenDatabase(bg, filepath.Join(dir, name), newTestGate(), &fencing.DatabaseOptions{Create: true})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
		if err := d.Image(bg, filepath.Join(dir, "image-"+name)); err != nil {
			t.Errorf("image of %q: %v", name, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		for _, made := range []string{name, "image-" + name} {
			if _, err := os.Stat(filepath.Join(dir, made)); err != nil {
				t.Errorf("%q: %v", made, err)
			}
			os.Remove(filepath.Join(dir, made))
		}
	}
	for _, path := range []string{"", filepath.Join(dir, "a\x00b")} {
		_, err := fencing.OpenDatabase(bg, path, newTestGate(), &fencing.DatabaseOptions{Create: true})
		wantCode(t, fmt.Sprintf("%q", path), err, coord.CodeOptionsInvalid)
	}
	if _, err := fencing.OpenDatabase(bg, filepath.Join(dir, "missing"), newTestGate(), nil); err == nil {
		t.Error("a missing file was opened without Create")
	}
	if files := filesIn(t, dir); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestDatabaseOptionsValidate(t *testing.T) {
	o := &fencing.DatabaseOptions{BusyTimeout: -1, MaxBytes: -1, MaxValue: -1, CloseTimeout: -1, MaxConnections: -1, IdleConnections: -1}
	err := o.Validate()
	wantCode(t, "Validate", err, coord.CodeOptionsInvalid)
	for _, name := range []string{"BusyTimeout", "MaxBytes", "MaxValue", "CloseTimeout", "MaxConnections", "IdleConnections"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	_, err = fencing.OpenDatabase(bg, "x", nil, nil)
	wantCode(t, "no gate", err, coord.CodeOptionsInvalid)
}
