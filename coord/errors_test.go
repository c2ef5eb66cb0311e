package coord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

func TestCodesThroughWrapping(t *testing.T) {
	fenced := &coord.FencedError{Epoch: 3, Reason: coord.FenceExpired}
	for _, tc := range []struct {
		err  error
		code coord.Code
	}{
		{coord.CodeDraining, coord.CodeDraining},
		{&coord.Error{Code: coord.CodeAtCapacity}, coord.CodeAtCapacity},
		{&coord.LeaseHeldError{}, coord.CodeLeaseHeld},
		{fenced, coord.CodeFenced},
		{&coord.OutcomeUnknownError{Cause: fenced}, coord.CodeOutcomeUnknown},
		{&coord.DrainTimeoutError{InFlight: 2}, coord.CodeDrainTimeout},
		{&coord.RestoreInvalidError{}, coord.CodeRestoreInvalid},
		{&coord.Error{Code: coord.CodeLeaseLost, Err: fenced}, coord.CodeLeaseLost},
	} {
		err := fmt.Errorf("outer: %w", tc.err)
		if got := coord.CodeOf(err); got != tc.code {
			t.Errorf("CodeOf(%v) = %s, want %s", err, got, tc.code)
		}
		if !errors.Is(err, tc.code) {
			t.Errorf("errors.Is(%v, %s) = false", err, tc.code)
		}
	}
	if got := coord.CodeOf(errors.New("x")); got != "" {
		t.Errorf("an error without a code has %q", got)
	}
}

// FENCED promises that nothing was committed; an unknown outcome must not match it.
func TestUnknownOutcomeIsNotFenced(t *testing.T) {
	err := &coord.OutcomeUnknownError{Cause: &coord.FencedError{Reason: coord.FenceLost}}
	if errors.Is(err, coord.CodeFenced) {
		t.Error("an unknown outcome matches FENCED")
	}
}

func TestErrorKeepsCauseAndHint(t *testing.T) {
	err := &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: "renew", Detail: "no answer", Hint: "look at etcd", Err: context.DeadlineExceeded}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error("the cause is lost")
	}
	if got, want := err.Error(), "LEASE_STORE_UNAVAILABLE: renew: no answer: context deadline exceeded (look at etcd)"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

// LS-7.
func TestValidateTTLAndOwner(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{
		coord.MinTTL: true, coord.MaxTTL: true, 10 * time.Second: true,
		0: false, -time.Second: false, coord.MinTTL - time.Millisecond: false, coord.MaxTTL + time.Millisecond: false,
		time.Second + time.Microsecond: false,
	} {
		if err := coord.ValidateTTL(ttl); (err == nil) != ok || err != nil && coord.CodeOf(err) != coord.CodeTTLInvalid {
			t.Errorf("ValidateTTL(%v) = %v", ttl, err)
		}
	}
	for _, bad := range []string{"", "a b", "a\n", "\xff", string(make([]byte, 201))} {
		if err := coord.ValidateOwner(bad); coord.CodeOf(err) != coord.CodeIDInvalid {
			t.Errorf("ValidateOwner(%q) = %v", bad, err)
		}
	}
}
