//go:build linux && cgo

package coord

// The C library answers clock_gettime without entering the kernel, which Go's own
// system call cannot.

/*
#include <time.h>

#cgo nocallback leasehold_boottime
static long long leasehold_boottime(void) {
	struct timespec ts;
	if (clock_gettime(CLOCK_BOOTTIME, &ts) != 0) {
		return -1;
	}
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}
*/
import "C"

import "time"

// monotonicNow reads CLOCK_BOOTTIME: CLOCK_MONOTONIC, which the Go runtime uses,
// stands still while the host is suspended, and the lease does not.
func monotonicNow() time.Duration {
	ns := C.leasehold_boottime()
	if ns < 0 {
		// The kernel has had this clock since 2.6.39. Without it no fence can be
		// measured, and no value returned here would be safe.
		panic("coord: this kernel has no CLOCK_BOOTTIME")
	}
	return time.Duration(ns)
}
