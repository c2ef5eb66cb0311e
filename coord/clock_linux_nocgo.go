//go:build linux && !cgo

package coord

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonicNow reads CLOCK_BOOTTIME: CLOCK_MONOTONIC, which the Go runtime uses,
// stands still while the host is suspended, and the lease does not.
func monotonicNow() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The kernel has had this clock since 2.6.39. Without it no fence can be
		// measured, and no value returned here would be safe.
		panic("coord: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
