package fencing

import (
	"testing"
	"time"
)

// Steps of an image shrink while the disk is slow and grow back, within bounds.
func TestNextBusyStep(t *testing.T) {
	for _, c := range []struct {
		pages int
		took  time.Duration
		want  int
	}{
		{imageStep, imagePace + 1, maxBusyStep},
		{maxBusyStep, imagePace + 1, maxBusyStep / 2},
		{minBusyStep, time.Second, minBusyStep},
		{32, imagePace, 32},
		{32, imagePace/2 - 1, 64},
		{maxBusyStep, 0, maxBusyStep},
	} {
		if got := nextBusyStep(c.pages, c.took); got != c.want {
			t.Errorf("after %d pages in %v: %d, want %d", c.pages, c.took, got, c.want)
		}
	}
}
