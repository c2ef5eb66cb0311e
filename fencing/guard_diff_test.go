package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/leaseholddb/leasehold/fencing"
)

// A machine runs one program of calls on a handle and writes down all that the
// caller can see.
type machine struct {
	rng  *rand.Rand
	db   *sql.DB
	tx   *sql.Tx
	stmt *sql.Stmt
	log  strings.Builder
}

// where picks what the next call is made on.
func (m *machine) where() interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
} {
	if m.tx != nil {
		return m.tx
	}
	return m.db
}

func (m *machine) note(format string, args ...any) { fmt.Fprintf(&m.log, format+"\n", args...) }

func (m *machine) value() any {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.FixedZone("", 3600))
	values := []any{nil, int64(m.rng.IntN(50)), -1.5, "", "text", "a\x00b", []byte{}, []byte{0, 0xff}, true, at, sql.NullString{}, uint8(7)}
	return values[m.rng.IntN(len(values))]
}

var diffExecs = []string{
	"INSERT INTO p(a, b, c) VALUES (?, ?, ?)", "INSERT OR REPLACE INTO p(id, a, b, c) VALUES (abs(random()) % 1 + 3, ?, ?, ?)",
	"UPDATE p SET a = ?, b = ?, c = ? WHERE id % 3 = 0", "DELETE FROM p WHERE a IS ? OR b IS ? OR c IS ?",
	"INSERT INTO p(a, b) VALUES (?, ?); INSERT INTO p(c) VALUES (?)", "INSERT INTO p(id, a, b, c) VALUES (1, ?, ?, ?)",
	"SELECT ?, ?, ?", "INSERT INTO nowhere VALUES (?, ?, ?)", "INSERT INTO p(a, b, c, z) VALUES (?, ?, ?, 1)", "; ; ", "",
}

var diffQueries = []string{
	"SELECT * FROM p ORDER BY id", "SELECT id, at, ok, d FROM p ORDER BY id", "SELECT count(*), max(a) FROM p", "SELECT a + ? FROM p",
	"INSERT INTO p(a) VALUES (?) RETURNING id, a, at", "SELECT ? UNION ALL SELECT 2", "SELECT 1; SELECT ?, 'second'", "SELECT nothing FROM p",
	"WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 5) SELECT i, ? FROM r", "", "-- nothing",
	"SELECT abs(-9223372036854775807 - 1)", "SELECT json(a) FROM p WHERE a = 'text' AND ? IS NOT 1",
}

func (m *machine) step() {
	switch m.rng.IntN(12) {
	case 0:
		m.begin()
	case 1, 2:
		m.end()
	case 3:
		m.prepare()
	case 4:
		m.useStmt()
	case 5:
		m.cancelled()
	case 6:
		m.named()
	case 7, 8, 9:
		query := diffExecs[m.rng.IntN(len(diffExecs))]
		result, err := m.where().ExecContext(bg, query, m.value(), m.value(), m.value())
		m.result(query, result, err)
	default:
		query := diffQueries[m.rng.IntN(len(diffQueries))]
		rows, err := m.where().QueryContext(bg, query, m.value())
		m.rows(query, rows, err)
	}
}

func (m *machine) begin() {
	if m.tx != nil {
		return
	}
	if m.stmt != nil {
		m.note("close: %v", m.stmt.Close()) // it would wait for the only connection
		m.stmt = nil
	}
	tx, err := m.db.Begin()
	m.note("begin: %v", err)
	m.tx = tx
}

func (m *machine) end() {
	if m.tx == nil {
		return
	}
	if m.rng.IntN(2) == 0 {
		m.note("commit: %v", m.tx.Commit())
	} else {
		m.note("rollback: %v", m.tx.Rollback())
	}
	m.note("again: %v", m.tx.Commit())
	m.tx, m.stmt = nil, nil
}

func (m *machine) prepare() {
	queries := []string{"INSERT INTO p(a, b) VALUES (?, ?)", "SELECT id, a FROM p WHERE id < 4 OR a = ? OR b = ? ORDER BY id", "SELEC ?, ?", ""}
	query := queries[m.rng.IntN(len(queries))]
	if m.stmt != nil {
		m.note("close: %v", m.stmt.Close())
	}
	var err error
	m.stmt, err = m.where().PrepareContext(bg, query)
	m.note("prepare %s: %v", query, err)
}

func (m *machine) useStmt() {
	if m.stmt == nil {
		return
	}
	if m.rng.IntN(2) == 0 {
		result, err := m.stmt.Exec(m.value(), m.value())
		m.result("stmt", result, err)
		return
	}
	rows, err := m.stmt.Query(m.value(), m.value())
	m.rows("stmt", rows, err)
}

func (m *machine) cancelled() {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	_, err := m.where().ExecContext(ctx, "INSERT INTO p(a) VALUES (1)")
	m.note("cancelled: %v", errors.Is(err, context.Canceled))
	rows, err := m.where().QueryContext(ctx, "SELECT 1")
	m.rows("cancelled", rows, err)
}

func (m *machine) named() {
	v := m.value()
	rows, err := m.where().QueryContext(bg, "SELECT :x, @y, $z, :x", sql.Named("x", v), sql.Named("y", 2), sql.Named("z", "z"))
	m.rows("named", rows, err)
}

func (m *machine) result(what string, result sql.Result, err error) {
	if err != nil {
		m.note("%s: %v", what, err)
		return
	}
	id, errID := result.LastInsertId()
	n, errN := result.RowsAffected()
	m.note("%s: %d %v %d %v", what, id, errID, n, errN)
}

func (m *machine) rows(what string, rows *sql.Rows, err error) {
	m.note("%s: %v", what, err)
	if err != nil {
		return
	}
	columns, err := rows.Columns()
	m.note("columns %q %v", columns, err)
	if len(columns) > 0 {
		types, err := rows.ColumnTypes()
		for _, c := range types {
			nullable, ok := c.Nullable()
			_, lengthOK := c.Length()
			_, _, scaleOK := c.DecimalSize()
			m.note("type %s %s %v %v %v %v %v", c.Name(), c.DatabaseTypeName(), c.ScanType(), nullable, ok, lengthOK, scaleOK)
		}
		m.note("types: %v", err)
	}
	for n := 0; rows.Next(); n++ {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		err := rows.Scan(values...)
		for _, v := range values {
			got := *(v.(*any))
			m.note("  %T %q", got, fmt.Sprint(got))
		}
		m.note("scan: %v", err)
		if n == 6 && m.rng.IntN(2) == 0 {
			break
		}
	}
	m.note("more: %v, err: %v, close: %v", rows.NextResultSet(), rows.Err(), rows.Close())
}

// A guarded handle whose gate is open behaves as a plain one does: the same random
// programs see the same results, errors and types, and leave the same database.
func TestGuardBehavesLikeThePlainDriver(t *testing.T) {
	const programs, steps = 25, 60
	for seed := range uint64(programs) {
		logs := map[string]string{}
		for name, db := range handles(t) {
			// One connection, so that last_insert_rowid and changes are comparable.
			db.SetMaxOpenConns(1)
			mustExec(t, db, "CREATE TABLE p(id INTEGER PRIMARY KEY, a, b TEXT, c BLOB, at DATETIME DEFAULT '2026-01-02 03:04:05', ok BOOLEAN DEFAULT 1, d DATE DEFAULT 0)")
			m := &machine{rng: rand.New(rand.NewPCG(seed, 1)), db: db}
			for range steps {
				m.step()
			}
			if m.tx != nil {
				m.note("at last: %v", m.tx.Rollback())
			}
			rows, err := db.Query("SELECT * FROM p ORDER BY id")
			m.rows("database", rows, err)
			logs[name] = m.log.String()
			if m.stmt != nil {
				m.stmt.Close()
			}
		}
		if logs["plain"] != logs["guarded"] {
			t.Fatalf("seed %d: %s", seed, firstDifference(logs["plain"], logs["guarded"]))
		}
	}
}

func firstDifference(plain, guarded string) string {
	p, g := strings.Split(plain, "\n"), strings.Split(guarded, "\n")
	for i := range min(len(p), len(g)) {
		if p[i] != g[i] {
			return fmt.Sprintf("line %d after %q:\nplain:   %s\nguarded: %s", i, p[max(0, i-1)], p[i], g[i])
		}
	}
	return "one is longer"
}

// Every optional interface of the driver's types is one of the wrapper's, and none of
// the interfaces that package driver has was overlooked.
func TestGuardHasEveryDriverInterface(t *testing.T) {
	known := map[string]bool{
		// They are not what a connection, statement, result set or transaction is.
		"Connector": true, "Driver": true, "DriverContext": true, "Valuer": true, "ValueConverter": true, "Value": true,
		// Deprecated by name; the list has them by their methods.
		"Execer": true, "Queryer": true, "ColumnConverter": true,
	}
	for _, i := range fencing.DriverInterfaces() {
		known[i.Name()] = true
	}
	pkg, err := importer.ForCompiler(token.NewFileSet(), "source", nil).Import("database/sql/driver")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pkg.Scope().Names() {
		named, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if ok && named.Exported() && types.IsInterface(named.Type()) && !known[name] {
			t.Errorf("nobody decided about driver.%s", name)
		}
	}
	for name, pair := range fencing.DriverPairs() {
		wrapper, inner := reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1])
		for _, i := range fencing.DriverInterfaces() {
			if inner.Implements(i) && !wrapper.Implements(i) {
				t.Errorf("the %s lacks %v", name, i)
			}
		}
	}
}

// Trap 60.
func TestGuardLargeValues(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	value := make([]byte, 64<<20)
	value[len(value)-1] = 7
	mustExec(t, d.DB(), "INSERT INTO t(v) VALUES (?)", value)
	var back []byte
	if err := d.DB().QueryRow("SELECT v FROM t").Scan(&back); err != nil || len(back) != len(value) || back[len(back)-1] != 7 {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
	insert, err := d.DB().Prepare("INSERT INTO t(v) VALUES (?)")
	if err != nil {
		t.Fatal(err)
	}
	defer insert.Close()
	// Memory that nobody touches costs nothing. The driver would take the longer of the
	// two for one byte.
	for _, size := range []int{1_000_000_001, 1<<32 + 1} {
		huge := make([]byte, size)
		for what, err := range map[string]error{
			"Exec":  noResult(d.DB().Exec("INSERT INTO t(v) VALUES (?)", huge)),
			"Query": drain(d.DB().Query("INSERT INTO t(v) VALUES (?) RETURNING id", huge)),
			"Stmt":  noResult(insert.Exec(huge)),
			"SQL":   noResult(d.DB().Exec("INSERT INTO t(v) VALUES (zeroblob(1100000000))")),
		} {
			var tooBig sqlite3.Error
			if !errors.As(err, &tooBig) || tooBig.Code != sqlite3.ErrTooBig {
				t.Errorf("a value of %d bytes by %s: %v", size, what, err)
			}
			if message, ok := fencing.SQLErrorOf(err); !ok || !strings.Contains(message, "too big") {
				t.Errorf("a value of %d bytes by %s: %q, %v", size, what, message, ok)
			}
		}
	}
	if n := count(t, d.DB(), "t"); n != 1 {
		t.Errorf("%d rows", n)
	}
}
