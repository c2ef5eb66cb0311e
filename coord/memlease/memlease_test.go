package memlease_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// LS-1 to LS-11.
func TestConformance(t *testing.T) {
	clock := &coordtest.Clock{}
	coordtest.Test(t, coordtest.Subject{Store: memlease.New(clock), Advance: clock.Advance})
}
