package coordtest

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// Defaults of a [Subject].
const (
	DefaultOrganization = "conformance"
	DefaultTTL          = time.Second
	DefaultRacers       = 8
	DefaultRounds       = 10
	DefaultCheckTimeout = time.Minute
)

// A Subject is a lease store under test and how hard to try it.
type Subject struct {
	Store coord.LeaseStore
	// Organization is that of every key the suite uses. No key of it may have been
	// acquired when the suite starts.
	Organization string // empty means [DefaultOrganization]

	// TTL of the leases in the checks; 0 means [DefaultTTL]. In real time the suite
	// relies on less than half of it passing unnoticed between two calls.
	TTL time.Duration
	// Advance lets d pass on the store's clock, or somewhat more, and returns when
	// the store can tell. If it is nil the suite sleeps, and runs its checks at the
	// same time rather than one after the other.
	Advance func(d time.Duration)

	// Audit is the store's audit trail. If it is nil, Store is asked if it is an
	// Auditor; if it is none, nothing is checked about audit trails.
	Audit coord.Auditor
	// RenewalsUnrecorded says that renewals write nothing, so that no audit entry
	// tells of them.
	RenewalsUnrecorded bool

	Racers       int           // goroutines of a race; 0 means [DefaultRacers]
	Rounds       int           // of each race; 0 means [DefaultRounds]
	CheckTimeout time.Duration // after which a check counts as hanging; 0 means [DefaultCheckTimeout]
}

// A Failure is a check that a store did not pass.
type Failure struct {
	Check    string // its name
	Sentence string // the promise of the contract that was broken
	Detail   string // what was seen
}

// String gives all three on one line.
func (f Failure) String() string { return fmt.Sprintf("%s: %s: %s", f.Check, f.Sentence, f.Detail) }

// A Check is one promise of the contract.
type Check struct {
	Name     string
	Sentence string
	run      func(ctx context.Context, s subject) error
}

// Checks lists the suite in the order in which it runs.
func Checks() []Check {
	return []Check{
		{"absent", "LS-1: an unknown key reads as absent", checkAbsent},
		{"first grant", "LS-1: the first acquisition grants epoch 1, echoes key and owner, and reports the granted TTL, a lease end in the future and a floor of 0", checkFirstGrant},
		{"read", "LS-1: Read returns the granted record", checkRead},
		{"held", "LS-2: Acquire is refused while an unexpired lease exists, with the current record", checkHeld},
		{"held by oneself", "LS-2: a holder renews, it does not re-acquire", checkHeldByOneself},
		{"after release", "LS-3: Acquire of a released lease moves the epoch from n to n+1, at once", checkAfterRelease},
		{"after expiry", "LS-3: Acquire of an expired lease moves the epoch from n to n+1, at once", checkAfterExpiry},
		{"epochs", "LS-3: epochs of one key are 1, 2, 3, … whatever mix of expiry and release ended the earlier ones, and revisions grow", checkEpochs},
		{"keys apart", "LS-3: what happens to one key happens to no other", checkKeysApart},
		{"renew", "LS-4: Renew keeps the epoch and moves the lease end forward", checkRenew},
		{"renew another's", "LS-4: Renew by another owner, for another epoch, or of an unknown key is LEASE_LOST and changes nothing", checkRenewAnothers},
		{"renew expired", "LS-4: an expired lease cannot be revived, even when nobody took over", checkRenewExpired},
		{"renew released", "LS-4: a released lease cannot be revived", checkRenewReleased},
		{"release", "LS-5: Release ends the lease at once and keeps the epoch", checkRelease},
		{"stale release", "LS-5: a stale release is refused with LEASE_LOST and changes nothing", checkStaleRelease},
		{"release expired", "LS-5: releasing a lease of one's own that has expired and that nobody took succeeds", checkReleaseExpired},
		{"release twice", "LS-5: releasing again what nobody took since succeeds", checkReleaseTwice},
		{"forget", "LS-6: MarkForgotten raises the floor to the current epoch", checkForget},
		{"forget another's", "LS-6: only the holder may call MarkForgotten", checkForgetAnothers},
		{"forget expired", "LS-6: MarkForgotten needs a live lease", checkForgetExpired},
		{"floor", "LS-6: the floor survives every later acquisition and never moves back", checkFloor},
		{"bad TTL", "LS-7: a TTL outside the bounds, or not a whole number of milliseconds, is rejected and leaves no record", checkBadTTL},
		{"bad ids", "LS-7: a key, owner or epoch that cannot be is ID_INVALID and leaves no record", checkBadIDs},
		{"TTL bounds", "LS-7: every TTL within the bounds is granted, never less than was asked for", checkTTLBounds},
		{"TTL honoured", "LS-7: no more is granted than the store will honour", checkTTLHonoured},
		{"records stay", "LS-8: a record outlives its lease", checkRecordsStay},
		{"cancelled", "LS-9: a call whose context has ended is LEASE_STORE_UNAVAILABLE with the context's error, and changes nothing", checkCancelled},
		{"audit", "LS-10: every granted operation is in the audit trail, with owner, epoch and time, and no refused one", checkAudit},
		{"race to acquire", "LS-11: of those racing for one key exactly one is granted, and the others are told who holds it", checkRaceToAcquire},
		{"race for an expiring lease", "LS-11: of those waiting for an expiry exactly one is granted, and not before it", checkRaceForExpiring},
		{"renewals against rivals", "LS-2: nobody is granted what is being renewed", checkRenewalsAgainstRivals},
		{"renew against release", "LS-5: a release ends a lease that is being renewed, and no renewal brings it back", checkRenewAgainstRelease},
		{"wait for nothing", "WaitReleased returns at once if no unexpired lease exists", checkWaitForNothing},
		{"wait for release", "WaitReleased returns once the lease is released, and not before", checkWaitForRelease},
		{"wait for expiry", "WaitReleased returns once the lease has expired", checkWaitForExpiry},
		{"wait cancelled", "WaitReleased returns its context's error when that ends", checkWaitCancelled},
	}
}

// Run puts the subject through all checks and returns those that failed, in the
// order of [Checks]. It does not panic if the store does, and it does not hang if
// the store does, but then leaves the goroutine behind. It stops when ctx ends.
func Run(ctx context.Context, s Subject) []Failure {
	var failures []Failure
	for c, result := range results(ctx, s) {
		if err := result(); err != nil {
			failures = append(failures, Failure{Check: c.Name, Sentence: c.Sentence, Detail: err.Error()})
		}
	}
	return failures
}

// Test reports each check as a subtest.
func Test(t *testing.T, s Subject) {
	t.Helper()
	for c, result := range results(t.Context(), s) {
		t.Run(c.Name, func(t *testing.T) {
			if err := result(); err != nil {
				t.Errorf("%s: %v", c.Sentence, err)
			}
		})
	}
}

// results yields each check with a function that returns what came of it. In real
// time all checks are started at once, because most of them only wait.
func results(ctx context.Context, s Subject) iter.Seq2[Check, func() error] {
	s = s.withDefaults()
	return func(yield func(Check, func() error) bool) {
		checks := Checks()
		run := make([]func() error, len(checks))
		for i, c := range checks {
			run[i] = func() error { return runCheck(ctx, c, s, i) }
			if s.Advance == nil {
				run[i] = started(run[i])
			}
		}
		for i, c := range checks {
			if !yield(c, run[i]) {
				return
			}
		}
	}
}

func started(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

func runCheck(ctx context.Context, c Check, s Subject, number int) error {
	ctx, cancel := context.WithTimeout(ctx, s.CheckTimeout)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				result <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		result <- c.run(ctx, subject{Subject: s, check: number})
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	// A store that notices the context may still have something better to say.
	select {
	case err := <-result:
		return err
	case <-time.After(min(time.Second, s.CheckTimeout)):
		return fmt.Errorf("no answer within %v", s.CheckTimeout)
	}
}

func (s Subject) withDefaults() Subject {
	if s.Organization == "" {
		s.Organization = DefaultOrganization
	}
	if s.TTL == 0 {
		s.TTL = DefaultTTL
	}
	if auditor, ok := s.Store.(coord.Auditor); ok && s.Audit == nil {
		s.Audit = auditor
	}
	if s.Racers == 0 {
		s.Racers = DefaultRacers
	}
	if s.Rounds == 0 {
		s.Rounds = DefaultRounds
	}
	if s.CheckTimeout == 0 {
		s.CheckTimeout = DefaultCheckTimeout
	}
	return s
}
