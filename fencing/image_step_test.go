package fencing

import (
	"testing"
	"time"
)

// Steps of an image shrink while the disk is slow and grow back, within bounds.
func TestNextStep(t *testing.T) {
	for _, c := range []struct {
		pages int
		took  time.Duration
		want  int
	}{
		{imageStep, imagePace + 1, imageStep / 2},
		{minImageStep, time.Second, minImageStep},
		{64, imagePace, 64},
		{64, imagePace/2 - 1, 128},
		{imageStep, 0, imageStep},
	} {
		if got := nextStep(c.pages, c.took); got != c.want {
			t.Errorf("after %d pages in %v: %d, want %d", c.pages, c.took, got, c.want)
		}
	}
}
