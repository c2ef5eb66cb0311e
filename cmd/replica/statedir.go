package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const lockBase = "replica.lock"

var errLocked = errors.New("locked")

// A stateDir is a state directory that this process has to itself. The lock goes
// with the process, however it ends.
type stateDir struct {
	lock *os.File
}

// lockStateDir creates dir if need be and refuses one that another process uses.
func lockStateDir(dir string) (*stateDir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockBase), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := tryLock(f); err != nil {
		f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("state directory %s: another replica is using it; give this one a --state-dir of its own", dir)
		}
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	return &stateDir{lock: f}, nil
}

// Close gives the directory back.
func (d *stateDir) Close() error { return d.lock.Close() }
