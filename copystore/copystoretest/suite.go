// Package copystoretest proves that a [copystore.Store] keeps its contract. Any
// binding can import it:
//
//	func TestConformance(t *testing.T) {
//		copystoretest.Test(t, copystoretest.Subject{Store: store, Prefix: "conformance/"})
//	}
//
// [Run] returns what it found instead of failing a test, so that a suite of
// deliberately broken stores can show that each check is able to fail.
package copystoretest

import (
	"context"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/copystore"
)

// Defaults of a [Subject].
const (
	DefaultBigSize      = 8 << 20
	DefaultObjects      = 64
	DefaultRacers       = 8
	DefaultRounds       = 10
	DefaultCheckTimeout = time.Minute
)

// A Subject is a store under test and how hard to try it.
type Subject struct {
	Store copystore.Store
	// Prefix is empty or ends with a slash. Everything the suite makes lies below
	// it; nothing may be there when the suite starts. It is left empty if all
	// checks succeed.
	Prefix string

	BigSize      int64         // bytes of the big object; 0 means [DefaultBigSize]
	Objects      int           // in the long listing; 0 means [DefaultObjects]. Choose more than the store's page.
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
		{"names", "a string that is no name is refused, and makes nothing", checkNames},
		{"prefixes", "a prefix that is neither empty nor ends with a slash is refused", checkPrefixes},
		{"round trip", "an object is opened with the bytes it was created from, the empty one too", checkRoundTrip},
		{"create only", "an object is never overwritten: the second create fails with ErrExists", checkCreateOnly},
		{"open absent", "opening what is not there fails with ErrNotExist", checkOpenAbsent},
		{"list after write", "a created object is listed at once, once and with its size; a deleted one is not", checkListAfterWrite},
		{"prefix boundary", "a listing holds nothing of a neighbour whose name starts the same", checkPrefixBoundary},
		{"long listing", "a listing of many objects has every one of them once", checkLongListing},
		{"stopped listing", "a listing can be left early", checkStoppedListing},
		{"delete absent", "deleting what is not there succeeds", checkDeleteAbsent},
		{"delete one", "a delete removes that object and no other, and frees its name", checkDeleteOne},
		{"failing reader", "a reader that fails leaves no object, and its error is passed on", checkFailingReader},
		{"wrong size", "a reader with more or fewer bytes than announced leaves no object", checkWrongSize},
		{"unfinished", "nobody sees an object before it is whole", checkUnfinished},
		{"cancelled", "a call whose context has ended does nothing and says so", checkCancelled},
		{"cancelled transfer", "a transfer ends soon after its context, and leaves no object", checkCancelledTransfer},
		{"cancelled read", "reading an opened object ends soon after its context", checkCancelledRead},
		{"big object", "a big object passes through unchanged", checkBigObject},
		{"race to create", "of concurrent creates of one name exactly one succeeds, and the object is wholly the winner's", checkRaceToCreate},
		{"race with deletes", "deletes beside a create do not harm it", checkRaceWithDeletes},
	}
}

// Run puts the subject through all checks, one after the other, and returns those
// that failed. It does not panic if the store does, and it does not hang if the
// store does, but then leaves the goroutine behind. It stops when ctx ends.
func Run(ctx context.Context, s Subject) []Failure {
	var failures []Failure
	for i, c := range Checks() {
		if err := runCheck(ctx, c, s.withDefaults(), fmt.Sprintf("%sc%02d/", s.Prefix, i)); err != nil {
			failures = append(failures, Failure{Check: c.Name, Sentence: c.Sentence, Detail: err.Error()})
		}
	}
	return failures
}

// Test runs each check as a subtest.
func Test(t *testing.T, s Subject) {
	t.Helper()
	for i, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			if err := runCheck(t.Context(), c, s.withDefaults(), fmt.Sprintf("%sc%02d/", s.Prefix, i)); err != nil {
				t.Errorf("%s: %v", c.Sentence, err)
			}
		})
	}
}

func runCheck(ctx context.Context, c Check, s Subject, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, s.CheckTimeout)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				result <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		result <- c.run(ctx, subject{Subject: s, prefix: prefix})
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
	if s.BigSize == 0 {
		s.BigSize = DefaultBigSize
	}
	if s.Objects == 0 {
		s.Objects = DefaultObjects
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
