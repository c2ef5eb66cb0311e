//go:build linux

package main

import (
	"reflect"
	"testing"
	"time"
)

// The plan depends on the seed and on nothing else; every fault is undone before the
// end, and none meets another on the same thing.
func TestPlan(t *testing.T) {
	const duration = 10 * time.Minute
	kinds := make(map[faultKind]bool)
	for seed := range uint64(20) {
		faults := plan(seed, duration, defaultStopEtcd)
		if !reflect.DeepEqual(faults, plan(seed, duration, defaultStopEtcd)) {
			t.Fatalf("seed %d makes two plans", seed)
		}
		if reflect.DeepEqual(faults, plan(seed+1, duration, defaultStopEtcd)) {
			t.Errorf("seeds %d and %d make the same plan", seed, seed+1)
		}
		free := make(map[string]time.Duration)
		for _, f := range faults {
			kinds[f.Kind] = true
			if (f.Kind == stopMember || f.Kind == stopMajority) && f.For > defaultStopEtcd {
				t.Errorf("seed %d: %+v stops etcd for too long", seed, f)
			}
			if f.At < free[f.hits()] || f.At+f.For > duration || f.For <= 0 {
				t.Errorf("seed %d: %+v comes too early, or ends too late", seed, f)
			}
			free[f.hits()] = f.At + f.For
		}
		if len(faults) < 50 {
			t.Errorf("seed %d: only %d faults in %v", seed, len(faults), duration)
		}
	}
	if len(kinds) != len(doses) {
		t.Errorf("only %d of %d kinds of fault are ever planned", len(kinds), len(doses))
	}
	if len(plan(1, minDuration, defaultStopEtcd)) == 0 {
		t.Error("the shortest run has no fault")
	}
}
