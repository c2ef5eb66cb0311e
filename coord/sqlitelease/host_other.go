//go:build !linux

package sqlitelease

import "errors"

// hostBoot fails: no clock of this platform is known to be shared by its processes.
func hostBoot() (string, error) {
	return "", errors.New("only on Linux do processes share a clock that leases can be counted on")
}
