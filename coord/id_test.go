package coord_test

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

const tenant = "t-860cead4b9aab8577b5f03fdeff1ead1"

// ID-7: known answers, so that no change of the derivation goes unnoticed.
func TestDerivationKnownAnswers(t *testing.T) {
	key, err := coord.NewOrganizationKey(bytes.Repeat([]byte{5}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string][2]string{
		"user-1": {"t-860cead4b9aab8577b5f03fdeff1ead1", "pc-924a6c80f193149fb4c458af0099d042"},
		"user-2": {"t-2f3897f6dc1f15c74b35ba8dfec966d9", "pc-dc949fb7a26810da863ee4f242211a09"},
	} {
		id, err := key.TenantID("https://idp.example/acme", subject)
		if err != nil || id != want[0] {
			t.Errorf("TenantID(%s) = %q, %v, want %q", subject, id, err, want[0])
		}
		label, err := key.PartitionLabel(id)
		if err != nil || label != want[1] {
			t.Errorf("PartitionLabel(%s) = %q, %v, want %q", id, label, err, want[1])
		}
	}
}

// ID-3: what would make two pairs share an input of the HMAC is refused.
func TestDerivationRefuses(t *testing.T) {
	key, err := coord.NewOrganizationKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 512)
	if _, err := key.TenantID(long, long); err != nil {
		t.Errorf("512 bytes refused: %v", err)
	}
	for name, bad := range map[string]string{"empty": "", "513 bytes": long + "x", "not UTF-8": "a\xff", "NUL": "a\x00b"} {
		if _, err := key.TenantID(bad, "user"); !errors.Is(err, coord.CodeIDInvalid) {
			t.Errorf("issuer %s: got %v, want ID_INVALID", name, err)
		}
		if _, err := key.TenantID("issuer", bad); !errors.Is(err, coord.CodeIDInvalid) {
			t.Errorf("subject %s: got %v, want ID_INVALID", name, err)
		}
	}
	composed, err1 := key.TenantID("issuer", "\u00e9")
	decomposed, err2 := key.TenantID("issuer", "e\u0301")
	if err1 != nil || err2 != nil || composed == decomposed {
		t.Errorf("subjects are normalized: %q %q", composed, decomposed)
	}
	if _, err := coord.NewOrganizationKey(make([]byte, 31)); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("a key of 31 bytes: got %v, want ID_INVALID", err)
	}
	if _, err := (coord.OrganizationKey{}).TenantID("issuer", "user"); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("the zero key derives: %v", err)
	}
	if _, err := key.PartitionLabel("t-short"); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("label of a malformed tenant: %v", err)
	}
}

func TestOrganizationKeyIsNotPrinted(t *testing.T) {
	key, err := coord.NewOrganizationKey(bytes.Repeat([]byte("S"), 40))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, key); strings.Contains(got, "SS") || strings.Contains(got, "83") {
			t.Errorf("%s prints the secret: %s", verb, got)
		}
	}
}

// The same list stands at every door; see also the HTTP tests.
var badIDs = []string{
	"", ".", "..", "../x", "%2e%2e", "a/b", "a?mode=memory", "a#b", "a\x00b", "a\xff", "a\n", " a", "A", "é", "-a",
	strings.Repeat("a", 300),
}

// ID-1, ID-2, ID-6.
func TestKeyRefusesWhatIsNotAnID(t *testing.T) {
	for _, bad := range badIDs {
		if _, err := coord.NewKey(bad, tenant); !errors.Is(err, coord.CodeIDInvalid) {
			t.Errorf("organization %q: got %v, want ID_INVALID", bad, err)
		}
		for _, id := range []string{bad, "t-" + bad, tenant + bad + "x", strings.ToUpper(tenant), tenant[:33]} {
			if _, err := coord.NewKey("acme", id); !errors.Is(err, coord.CodeIDInvalid) {
				t.Errorf("tenant %q: got %v, want ID_INVALID", id, err)
			}
		}
	}
	for _, good := range []string{"a", "0", "a-b", strings.Repeat("a", 63)} {
		key, err := coord.NewKey(good, tenant)
		if err != nil {
			t.Errorf("organization %q refused: %v", good, err)
		}
		if back, err := coord.ParseKey(key.String()); err != nil || back != key {
			t.Errorf("ParseKey(%q) = %v, %v", key, back, err)
		}
	}
	if err := (coord.Key{}).Validate(); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("the zero key is valid: %v", err)
	}
}

// The text of a refused id may be personal data and ends up in logs.
func TestRefusalDoesNotRepeatTheID(t *testing.T) {
	_, err := coord.NewKey("Jane.Doe@example", tenant)
	if err == nil || strings.Contains(err.Error(), "Jane") {
		t.Errorf("the error repeats the id: %v", err)
	}
}

func TestKeyNames(t *testing.T) {
	key, err := coord.NewKey("acme", tenant)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := key.String(), "acme/"+tenant; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got, want := key.Dir(), "orgs/acme/tenants/"+tenant; got != want {
		t.Errorf("Dir() = %q, want %q", got, want)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("acme/" + tenant)
	for _, bad := range badIDs {
		f.Add(bad + "/" + tenant)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := coord.ParseKey(s)
		if err != nil {
			if coord.CodeOf(err) != coord.CodeIDInvalid {
				t.Fatalf("refused with %q", coord.CodeOf(err))
			}
			return
		}
		if key.String() != s {
			t.Fatalf("%q reads back as %q", s, key)
		}
		if d := key.Dir(); path.Clean(d) != d || path.IsAbs(d) || strings.Contains(d, "..") || strings.Count(d, "/") != 3 {
			t.Fatalf("%q leaves its place: %q", s, d)
		}
	})
}

func FuzzParseEpoch(f *testing.F) {
	f.Add("e00000001")
	f.Add("e123456789")
	f.Add("e0000001")
	f.Fuzz(func(t *testing.T, s string) {
		if e, err := coord.ParseEpoch(s); err == nil && (e == 0 || e.String() != s) {
			t.Fatalf("%q parsed as %d, which is written %q", s, uint64(e), e)
		}
	})
}
