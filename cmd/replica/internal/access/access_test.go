package access_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
	"github.com/leaseholddb/leasehold/coord"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tenant = "acme/t-860cead4b9aab8577b5f03fdeff1ead1"

func mustGrant(t testing.TB, role access.Role, tenants ...string) access.Grant {
	t.Helper()
	g, err := access.NewGrant(role, "x", tenants)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// RE-8: a token gives what its entry says; nothing else gives anything.
func TestTokensGiveWhatTheirEntriesSay(t *testing.T) {
	ops, shop, peer := access.NewToken(), access.NewToken(), access.NewToken()
	file := strings.Join([]string{
		"# who may do what", "",
		mustGrant(t, access.Operator).Entry(ops) + "  # on call",
		"\t" + mustGrant(t, access.Tenant, tenant).Entry(shop),
		mustGrant(t, access.Peer).Entry(peer),
	}, "\n")
	if strings.Contains(file, ops) {
		t.Error("an entry holds its token")
	}
	tokens, err := access.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	own, err := coord.ParseKey(tenant)
	if err != nil {
		t.Fatal(err)
	}
	other, err := coord.ParseKey("acme/t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]struct {
		role       access.Role
		own, other bool
	}{
		ops: {access.Operator, true, true}, shop: {access.Tenant, true, false}, peer: {access.Peer, false, false},
	} {
		grant, known := tokens.Find(token)
		if !known || grant.Role != want.role || grant.Reaches(own) != want.own || grant.Reaches(other) != want.other {
			t.Errorf("got %+v, %v, want %+v", grant, known, want)
		}
	}
	for _, token := range []string{"", ops[1:], ops + "x", strings.ToLower(ops), access.NewToken(), strings.Repeat("x", 1<<20)} {
		if grant, known := tokens.Find(token); known || grant.Reaches(own) {
			t.Errorf("%.20q is known", token)
		}
	}
	if _, known := (*access.Tokens)(nil).Find(ops); known {
		t.Error("no tokens know one")
	}
}

func TestParseNamesEveryProblem(t *testing.T) {
	secret := access.NewToken()
	entry := mustGrant(t, access.Operator).Entry(secret)
	digest, _, _ := strings.Cut(entry, " ")
	_, err := access.Parse([]byte(strings.Join([]string{
		entry, entry, secret + " operator x", digest + " admin x", digest + " operator a/b", digest + " tenant x",
		digest + " operator x " + tenant, digest + " tenant x acme/..", digest,
	}, "\n")))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 8", "line 9"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "line 1:") {
		t.Errorf("got %v", err)
	}
	if _, err := access.Parse([]byte("# nothing\n")); err == nil {
		t.Error("a file without entries is accepted, and would lock everybody out")
	}
}

// RE-8: a file of secrets that everybody may read is refused, with what to do.
func TestReadSecretRefusesOpenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o600, 0o440, 0o400, 0o660} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if text, err := access.ReadSecret(path); err != nil || string(text) != "x\n" {
			t.Errorf("%#o: %q, %v", mode, text, err)
		}
	}
	for _, mode := range []os.FileMode{0o644, 0o604, 0o602, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := access.ReadSecret(path); err == nil || !strings.Contains(err.Error(), "chmod o= "+path) {
			t.Errorf("%#o: %v", mode, err)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing"), os.DevNull} {
		if _, err := access.ReadSecret(path); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}

func TestParseToken(t *testing.T) {
	if got, err := access.ParseToken([]byte(" lh_x\r\n")); err != nil || got != "lh_x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "\n", "a b", "a\nb", strings.Repeat("x", 2000)} {
		if _, err := access.ParseToken([]byte(text)); err == nil {
			t.Errorf("%.10q is accepted", text)
		}
	}
}

// A file that is wrong for a while takes away nothing that was right.
func TestLiveKeepsWhatWasInOrder(t *testing.T) {
	text, readErr := "one", error(nil)
	live, err := access.NewLive(func() ([]byte, error) { return []byte(text), readErr }, func(b []byte) (string, error) {
		if string(b) == "bad" {
			return "", os.ErrInvalid
		}
		return string(b), nil
	})
	if err != nil || live.Value() != "one" {
		t.Fatalf("%q, %v", live.Value(), err)
	}
	for _, step := range []struct {
		text    string
		readErr error
		changed bool
		fails   bool
		value   string
	}{
		{"one", nil, false, false, "one"},
		{"bad", nil, false, true, "one"},
		{"bad", nil, false, true, "one"},
		{"two", os.ErrPermission, false, true, "one"},
		{"two", nil, true, false, "two"},
	} {
		text, readErr = step.text, step.readErr
		changed, err := live.Refresh()
		if changed != step.changed || (err != nil) != step.fails || live.Value() != step.value {
			t.Errorf("%+v: changed %v, %v, value %q", step, changed, err, live.Value())
		}
	}
	text, readErr = "bad", nil
	if _, err := access.NewLive(func() ([]byte, error) { return []byte(text), readErr }, func([]byte) (string, error) { return "", os.ErrInvalid }); err == nil {
		t.Error("a first reading that fails is accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(mustGrant(f, access.Operator).Entry("x"))
	f.Add(mustGrant(f, access.Tenant, tenant).Entry("x") + " # comment\n\n")
	f.Add(strings.Repeat("0", 64) + " peer x\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := access.Parse([]byte(text))
		if (tokens == nil) == (err == nil) {
			t.Fatalf("%v, %v", tokens, err)
		}
		if grant, known := tokens.Find(text); known && grant.Role == "" {
			t.Fatalf("a grant without a role: %+v", grant)
		}
	})
}
