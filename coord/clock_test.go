package coord_test

import (
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

func TestSystemClockIsMonotonicAndQuickNeverLeads(t *testing.T) {
	clock := coord.SystemClock()
	last := clock.Now()
	for range 10_000 {
		quick := clock.Quick()
		now := clock.Now()
		if now < last {
			t.Fatalf("Now went back from %v to %v", last, now)
		}
		if quick > now {
			t.Fatalf("Quick (%v) leads Now (%v)", quick, now)
		}
		last = now
	}
}
