// Package filelocks tells tests which locks this process holds on a file.
package filelocks

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Of returns what the kernel says of the locks that this process holds on the file, by its
// descriptors, a line each in order. The list of all processes' locks, /proc/locks, may be
// read with a line missing while others lock and unlock. It works on Linux.
func Of(t testing.TB, path string) string {
	t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var locks []string
	for _, d := range descriptors {
		if target, err := os.Readlink("/proc/self/fd/" + d.Name()); err != nil || target != path {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + d.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(info)) {
			if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "lock:" {
				locks = append(locks, strings.Join(fields[2:], " ")) // without its number
			}
		}
	}
	slices.Sort(locks)
	return strings.Join(locks, "\n")
}
