package coord

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of a lease's time to live.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 10 * time.Minute
)

// MaxOwner is the greatest number of characters in an owner's name.
const MaxOwner = 200

// An Epoch counts the grants of one key: 1, 2, 3, … without gaps or repeats. It
// is the fencing token of one tenant. Zero means that no grant was ever made.
type Epoch uint64

const epochDigits = 8

// String writes the epoch as it stands in object names: "e" and at least eight
// decimal digits.
func (e Epoch) String() string { return fmt.Sprintf("e%0*d", epochDigits, uint64(e)) }

// ParseEpoch is the inverse of [Epoch.String]; it refuses any other spelling of
// the same number, and zero.
func ParseEpoch(s string) (Epoch, error) {
	digits, ok := strings.CutPrefix(s, "e")
	n, err := strconv.ParseUint(digits, 10, 64)
	if e := Epoch(n); ok && err == nil && e > 0 && e.String() == s {
		return e, nil
	}
	return 0, &Error{Code: CodeIDInvalid, Detail: "an epoch is written e and at least 8 digits, from e00000001"}
}

// A Revision identifies one tenure across the whole lease store, not only within
// its key: of two grants the store made, the later has the greater revision. Use
// it where a foreign system fences several tenants by one number.
type Revision int64

// A Tenure names one grant by one owner. It is what every operation of a holder
// is compared against.
type Tenure struct {
	Key   Key
	Owner string
	Epoch Epoch
}

// Validate refuses, with [CodeIDInvalid], a tenure that no grant can have made.
func (t Tenure) Validate() error {
	if err := t.Key.Validate(); err != nil {
		return err
	}
	if err := ValidateOwner(t.Owner); err != nil {
		return err
	}
	if t.Epoch == 0 {
		return idInvalid("epoch", "must be positive")
	}
	return nil
}

// A Record is what a lease store keeps for one key. Records are never deleted:
// a record is the epoch floor of its tenant.
type Record struct {
	Key      Key
	Owner    string   // of the latest grant, whether or not it is over
	Epoch    Epoch    // of the latest grant
	Revision Revision // of the latest grant

	// Held says whether the store, on its own clock, counted the lease as
	// unexpired and unreleased when it answered. Believe it rather than
	// comparing LeaseUntil with a clock of yours.
	Held bool
	// LeaseUntil is when the lease ends or ended, for people to read; as near as
	// the store can tell.
	LeaseUntil time.Time
	// GrantedAt is when the latest grant was made, for people to read; zero if the
	// store does not tell.
	GrantedAt time.Time

	ForgottenAt Epoch  // copies of this epoch and older ones are dead; 0 if never forgotten
	Address     string // where the owner's replica can be reached, as the owner said; may be empty
}

// A Grant is the answer to a successful Acquire or Renew.
type Grant struct {
	Tenure
	Revision    Revision
	TTL         time.Duration // what the store will really honour, counted from its receipt of the request
	LeaseUntil  time.Time     // for people to read, like Record.LeaseUntil
	ForgottenAt Epoch         // the forgotten floor at the time of the grant
	// RaisedTo is the epoch that an operator last raised the key to, after the store was
	// replaced or restored, or 0. Above it the revisions of grants grow with their epochs;
	// what was granted up to it may have revisions of another history.
	RaisedTo Epoch
}

// A LeaseStore is a linearizable compare-and-set per key on the store's own
// clock. Bindings ship for etcd, for SQLite and in memory; package coordtest
// proves a binding.
//
// An implementation may assume that ctx is not nil, and must be safe for
// concurrent use. It validates its arguments before it touches anything: the
// zero Key, a bad owner, a zero epoch ([CodeIDInvalid]) or a TTL outside the
// bounds ([CodeTTLInvalid]) leaves no record.
//
// Contention that it could not resolve, and a store that cannot be reached, are
// [CodeLeaseStoreUnavailable]. Such an answer changes nothing that the caller
// believed before: the operation may or may not have been applied, and the store
// settles that by itself, so that no ownership stays alive which no caller knows
// of. Errors of ctx may be returned as the cause of that code. Every other failure
// passes through as it is.
type LeaseStore interface {
	// Read returns the record of key, and false if no grant was ever made.
	Read(ctx context.Context, key Key) (Record, bool, error)

	// Acquire grants key to owner at the next epoch if no unexpired lease
	// exists, expired and released ones alike waiting for nothing. Otherwise it
	// fails with a [LeaseHeldError] that carries the current record, for the
	// current holder as for anyone else: a holder renews. A lease granted here is
	// granted to nobody else until its TTL has passed since the store received
	// this request, or it was released.
	//
	// The granted TTL may differ from the wanted one where a store counts
	// coarsely; it is at least the wanted one and never more than the store
	// will honour.
	Acquire(ctx context.Context, key Key, owner string, ttl time.Duration) (Grant, error)

	// Renew keeps the epoch and moves the lease's end forward, to TTL after the
	// store received a request sent after this call began. For another owner or
	// epoch, an unknown key, or a lease that has expired (even if nobody took
	// over) it fails with [CodeLeaseLost]: an expired lease cannot be revived.
	Renew(ctx context.Context, tenure Tenure, ttl time.Duration) (Grant, error)

	// Release ends the tenure at once and keeps the epoch. A stale release fails
	// with [CodeLeaseLost] and changes nothing. Releasing one's own lease
	// that has expired and that nobody took succeeds, and so does releasing twice.
	Release(ctx context.Context, tenure Tenure) error

	// MarkForgotten raises the forgotten floor of the key to the tenure's epoch
	// and returns the floor. Only the holder of an unexpired lease may do so;
	// anyone else gets [CodeLeaseLost]. The floor never moves back.
	MarkForgotten(ctx context.Context, tenure Tenure) (Epoch, error)
}

// A ReleaseWaiter is a [LeaseStore] that can tell when a key becomes free without
// being asked again and again.
type ReleaseWaiter interface {
	// WaitReleased returns nil once no unexpired lease exists on key, at once if
	// none does. It reports what it saw, not a reservation: somebody else may
	// acquire first. It returns ctx's error when ctx ends.
	WaitReleased(ctx context.Context, key Key) error
}

// ValidateTTL refuses, with [CodeTTLInvalid], a time to live outside
// [[MinTTL], [MaxTTL]] or not a whole number of milliseconds.
func ValidateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL || ttl%time.Millisecond != 0 {
		return &Error{Code: CodeTTLInvalid, Detail: fmt.Sprintf("a lease's TTL is a whole number of milliseconds from %v to %v, not %v", MinTTL, MaxTTL, ttl)}
	}
	return nil
}

// ValidateOwner refuses, with [CodeIDInvalid], an owner that is not 1–200
// characters of well-formed, printable UTF-8 without spaces. Owners
// end up in logs and object metadata.
func ValidateOwner(owner string) error {
	if n := utf8.RuneCountInString(owner); n == 0 || n > MaxOwner {
		return idInvalid("owner", fmt.Sprintf("must have 1 to %d characters", MaxOwner))
	}
	if !utf8.ValidString(owner) {
		return idInvalid("owner", "is not well-formed UTF-8")
	}
	for _, r := range owner {
		if !unicode.IsPrint(r) || r == ' ' {
			return idInvalid("owner", "may hold only printable characters and no spaces")
		}
	}
	return nil
}
