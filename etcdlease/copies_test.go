package etcdlease_test

import (
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// Replicas of one prefix that would keep different copies are told so.
func TestCopiesAreBoundOnce(t *testing.T) {
	first, second := open(t, nil), open(t, nil)
	for _, s := range []*etcdlease.Store{first, second, first} {
		if err := s.BindCopies(t.Context(), "ONE"); err != nil {
			t.Error(err)
		}
	}
	if err := second.BindCopies(t.Context(), "TWO"); coord.CodeOf(err) != coord.CodeOptionsInvalid {
		t.Errorf("other copies on the same prefix: %v, want OPTIONS_INVALID", err)
	}
}
