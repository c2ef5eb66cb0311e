package sqlitelease

import (
	"fmt"
	"os"
	"strings"
)

// hostBoot names the clock that every process of this boot reads. A time namespace
// has a clock of its own.
func hostBoot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !os.IsNotExist(err) { // kernels before 5.6 have none
		return "", fmt.Errorf("which time namespace this is: %w", err)
	}
	return strings.TrimSpace(string(id)) + " " + namespace, nil
}
