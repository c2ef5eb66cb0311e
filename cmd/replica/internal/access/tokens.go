package access

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

// A Role is a kind of token.
type Role string

// The roles; see the package comment.
const (
	Operator Role = "operator"
	Peer     Role = "peer"
	Tenant   Role = "tenant"
)

// A Grant is what a token gives. The zero Grant gives nothing.
type Grant struct {
	Name    string // of the token's entry; no secret
	Role    Role
	Tenants []coord.Key // of a [Tenant]: those it reaches
}

// Reaches reports whether the grant is for the data of the tenant.
func (g Grant) Reaches(key coord.Key) bool {
	return g.Role == Operator || g.Role == Tenant && slices.Contains(g.Tenants, key)
}

// Tokens are the entries of a file. They are read-only, and safe for concurrent use.
type Tokens struct {
	blind   [sha256.Size]byte // random; see index
	entries map[[sha256.Size]byte]Grant
}

// index is where the entry of a digest stands. Nobody can aim at an index, so the
// time that a lookup takes tells nothing about the digests that are there.
func (t *Tokens) index(digest [sha256.Size]byte) (at [sha256.Size]byte) {
	mac := hmac.New(sha256.New, t.blind[:])
	mac.Write(digest[:])
	mac.Sum(at[:0])
	return at
}

// maxToken is the longest token that is looked at.
const maxToken = 1024

// Find returns what the token gives, and whether it is known.
func (t *Tokens) Find(token string) (Grant, bool) {
	if t == nil || token == "" || len(token) > maxToken {
		return Grant{}, false
	}
	grant, known := t.entries[t.index(sha256.Sum256([]byte(token)))]
	return grant, known
}

// Parse reads the entries of a file; see the package comment. Everything that is
// wrong is reported together, by line, and nothing that could be a secret is quoted.
func Parse(text []byte) (*Tokens, error) {
	t := &Tokens{entries: make(map[[sha256.Size]byte]Grant)}
	rand.Read(t.blind[:]) // never fails
	var problems []error
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxFile)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		digest, grant, err := parseEntry(fields)
		at := t.index(digest)
		if _, twice := t.entries[at]; err == nil && twice {
			err = errors.New("the same token has an entry above")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		t.entries[at] = grant
	}
	problems = append(problems, lines.Err())
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(t.entries) == 0 {
		return nil, errors.New("no entry in it")
	}
	return t, nil
}

var nameChars = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func parseEntry(fields []string) (digest [sha256.Size]byte, grant Grant, err error) {
	if len(fields) < 3 {
		return digest, grant, errors.New("an entry is the SHA-256 of a token, a role, a name, and the tenants of a tenant's token")
	}
	raw, err := hex.DecodeString(fields[0])
	if err != nil || len(raw) != len(digest) {
		return digest, grant, errors.New("the first word must be the SHA-256 of a token in 64 hex digits, and not the token")
	}
	grant, err = NewGrant(Role(fields[1]), fields[2], fields[3:])
	return [sha256.Size]byte(raw), grant, err
}

// NewGrant checks the parts of an entry. A [Tenant]'s must name at least one tenant,
// as organization/tenant, and the others none.
func NewGrant(role Role, name string, tenants []string) (Grant, error) {
	g := Grant{Name: name, Role: role}
	if role != Operator && role != Peer && role != Tenant {
		return Grant{}, errors.New("the role must be tenant, operator or peer")
	}
	if !nameChars.MatchString(name) {
		return Grant{}, errors.New("the name must be 1 to 63 letters, digits, dots, dashes and underscores")
	}
	if (role == Tenant) != (len(tenants) > 0) {
		return Grant{}, errors.New("an entry names tenants if its role is tenant, and only then")
	}
	for _, text := range tenants {
		key, err := coord.ParseKey(text)
		if err != nil {
			return Grant{}, err
		}
		g.Tenants = append(g.Tenants, key)
	}
	return g, nil
}

// Entry returns the line that gives the token these rights.
func (g Grant) Entry(token string) string {
	digest := sha256.Sum256([]byte(token))
	words := []string{hex.EncodeToString(digest[:]), string(g.Role), g.Name}
	for _, key := range g.Tenants {
		words = append(words, key.String())
	}
	return strings.Join(words, " ")
}

// NewToken returns a token of 256 random bits.
func NewToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return "lh_" + base64.RawURLEncoding.EncodeToString(b[:])
}
