package fencing

import (
	"time"

	"golang.org/x/sys/unix"
)

// birthTime returns when the file was made, zero if that cannot be known.
func birthTime(path string) time.Time {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
}
