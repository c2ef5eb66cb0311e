//go:build !linux

package coord

import "time"

var processStart = time.Now()

func monotonicNow() time.Duration { return time.Since(processStart) }
