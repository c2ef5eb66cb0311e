package etcdlease

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// The defaults of [Options].
const (
	DefaultPrefix         = "/leasehold/"
	DefaultRequestTimeout = 2 * time.Second
	DefaultKeysPerLease   = 1000
)

// The bounds of [Options].
const (
	MinRequestTimeout = 10 * time.Millisecond
	MaxRequestTimeout = time.Minute
	// MaxKeysPerLease keeps the expiry of one etcd lease, which deletes all its
	// keys in one step, from stalling the cluster.
	MaxKeysPerLease  = 10_000
	maxPrefixLength  = 200
	maxAddressLength = 500
)

// Options adjust a [Store]. The zero value of each field is its default.
type Options struct {
	// Prefix is put before every key: [DefaultPrefix] if empty. It begins and ends
	// with a slash and holds letters, digits and ._- between slashes.
	Prefix string
	// Address is the URL at which other replicas reach this one. It is written
	// with every grant and returned as [coord.Record.Address]. May be empty.
	Address string
	// RequestTimeout bounds every request to etcd, [DefaultRequestTimeout] if 0. A
	// call makes a handful of requests at most.
	RequestTimeout time.Duration
	// KeysPerLease is how many keys share one etcd lease: [DefaultKeysPerLease] if 0.
	KeysPerLease int
	// Logger receives what no caller hears of; nothing is logged if nil.
	Logger *zap.Logger
	// Clock is what the end of each tenure is measured on: [coord.SystemClock] if
	// nil.
	Clock coord.Clock
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.KeysPerLease == 0 {
		c.KeysPerLease = DefaultKeysPerLease
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Clock == nil {
		c.Clock = coord.SystemClock()
	}
	return c
}

// Validate names everything that is wrong with o in one error of
// [coord.CodeOptionsInvalid], or returns nil. A nil o is valid.
func (o *Options) Validate() error {
	return optionsError(o.violations())
}

func (o *Options) violations() []string {
	c := o.withDefaults()
	var bad []string
	if why := checkPrefix(c.Prefix); why != "" {
		bad = append(bad, "Prefix "+why)
	}
	if why := checkText(c.Address, maxAddressLength); why != "" {
		bad = append(bad, "Address "+why)
	}
	if c.RequestTimeout < MinRequestTimeout || c.RequestTimeout > MaxRequestTimeout {
		bad = append(bad, fmt.Sprintf("RequestTimeout is %v, not from %v to %v", c.RequestTimeout, MinRequestTimeout, MaxRequestTimeout))
	}
	if c.KeysPerLease < 1 || c.KeysPerLease > MaxKeysPerLease {
		bad = append(bad, fmt.Sprintf("KeysPerLease is %d, not from 1 to %d", c.KeysPerLease, MaxKeysPerLease))
	}
	return bad
}

func optionsError(bad []string) error {
	if bad == nil {
		return nil
	}
	return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "etcd lease store", Detail: strings.Join(bad, "; ")}
}

func checkPrefix(p string) string {
	if len(p) > maxPrefixLength {
		return fmt.Sprintf("has more than %d bytes", maxPrefixLength)
	}
	if !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") {
		return "must begin and end with a slash"
	}
	if strings.Contains(p, "//") {
		return "must not hold two slashes in a row"
	}
	for _, r := range p {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r)) {
			return "may hold only letters, digits, slashes and ._-"
		}
	}
	return ""
}

func checkText(s string, limit int) string {
	if len(s) > limit {
		return fmt.Sprintf("has more than %d bytes", limit)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		return "may hold only printable characters and no spaces"
	}
	return ""
}
