package httpapi

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

func TestOneStatement(t *testing.T) {
	for _, good := range []string{
		"", ";", "SELECT 1", "SELECT 1;", " /* ; COMMIT */ INSERT INTO t VALUES ('; COMMIT') ; -- ; COMMIT\n",
		`UPDATE "a;b" SET [c;d] = 'it''s; so'`, "SELECT `;`",
		"CREATE TRIGGER r AFTER INSERT ON t BEGIN UPDATE u SET a = CASE WHEN 1 THEN 2 END; DELETE FROM v; END;",
		"create temp trigger r after insert on t begin select 1; end",
		"SELECT 'unterminated",
	} {
		if err := oneStatement(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"COMMIT", "commit;", " ;; /* x */ \ufeffCOMMIT", "BEGIN", "END", "ROLLBACK TO x", "SAVEPOINT x", "RELEASE x", "VACUUM INTO 'x'",
		"INSERT INTO t VALUES (1); COMMIT", "INSERT INTO t VALUES ('a'';');COMMIT", "SELECT 1;SELECT 2", "--\n;\nEND",
		"CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END; COMMIT",
		"CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END; END",
		"CREATE TABLE trigger_log(a); COMMIT",
	} {
		if err := oneStatement(bad); !errors.Is(err, coord.CodeSQLRefused) {
			t.Errorf("%q: got %v, want SQL_REFUSED", bad, err)
		}
	}
}

func TestArguments(t *testing.T) {
	var args []argument
	in := `[null, true, false, 9007199254740993, -1, 1.5, 1e3, "é", {"base64":"AAH/"}, {"base64":""}]`
	if err := json.Unmarshal([]byte(in), &args); err != nil {
		t.Fatal(err)
	}
	want := []any{nil, int64(1), int64(0), int64(9007199254740993), int64(-1), 1.5, 1000.0, "é", "\x00\x01\xff", ""}
	for i, a := range args {
		got := a.value
		if b, ok := got.([]byte); ok {
			got = string(b)
		}
		if got != want[i] {
			t.Errorf("argument %d is %#v, want %#v", i, a.value, want[i])
		}
	}
	for _, bad := range []string{`[[1]]`, `[{}]`, `[{"base64":1}]`, `[{"base64":"?"}]`, `[{"base64":"","x":1}]`, `[9223372036854775808]`, `[1e999]`} {
		if err := json.Unmarshal([]byte(bad), new([]argument)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{
		{nil, "null"}, {int64(math.MaxInt64), "9223372036854775807"}, {1.25, "1.25"}, {"a\"b", `"a\"b"`},
		{[]byte{0, 255}, `{"base64":"AP8="}`}, {"\xff", `{"base64":"/w=="}`}, {true, "true"},
		{math.Inf(1), `{"real":"Infinity"}`}, {math.Inf(-1), `{"real":"-Infinity"}`},
		{time.Unix(1<<40, 0).UTC(), `"36812-02-20T00:36:16Z"`},
	} {
		var v value
		if err := v.Scan(c.in); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(v)
		if err != nil || string(got) != c.want {
			t.Errorf("%#v became %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}
