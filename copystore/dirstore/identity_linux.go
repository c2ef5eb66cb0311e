package dirstore

import (
	"os"

	"golang.org/x/sys/unix"
)

// identify returns what tells d from every other directory that had or will have its
// name, and false where the file system does not keep that. Numbers of removed
// directories are used again; together with the time of their making they are not, once
// the clock that stamps them has gone on: what is made from now on has a later time.
func identify(d *os.File) (identity, bool) {
	var st unix.Statx_t
	err := unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return identity{}, false
	}
	id := identity{uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), st.Ino, st.Btime.Sec, st.Btime.Nsec}
	var now unix.Timespec // which stands still from one tick to the next, as the stamps do
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return identity{}, false
	}
	sec, nsec := now.Unix()
	return id, sec > id.seconds || sec == id.seconds && nsec > int64(id.nanoseconds)
}
