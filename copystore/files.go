package copystore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	restoreTemp     = ".restore.db"
	imageTempPrefix = ".image-"

	verifyTempPrefix = ".verify-"
	warmTempPrefix   = ".warm-"
	retiredPrefix    = ".retired-"
)

// imageTemp is where an owner's image waits for its upload. The epoch keeps a
// publish that outlived its tenure away from the next tenure's.
func imageTemp(dir string, epoch coord.Epoch) string {
	return filepath.Join(dir, imageTempPrefix+epoch.String()+imageExt)
}

// removeLedger removes a database file and everything that SQLite may have left
// beside it. A journal that outlived its file would be replayed into the next
// one of that name, so journals go first.
func removeLedger(path string) error {
	var errs []error
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Retire takes the ledger at path, which nobody has open any more, out of the way of the
// next restore, and returns what then removes it: to free a large file takes a while. What
// is not removed goes with the next restore.
func Retire(path string) (remove func() error, _ error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), retiredPrefix)
	if err != nil {
		return nil, fmt.Errorf("retire: %w", err)
	}
	remove = func() error { return os.RemoveAll(dir) }
	if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
		return nil, errors.Join(fmt.Errorf("retire: %w", err), remove())
	}
	return remove, nil
}

// sweepTemps removes what a crashed restore, publish, verification or warm copy left in
// a tenant's directory; keep, if not empty, is one that is still of use.
func sweepTemps(dir, keep string) error {
	for _, prefix := range []string{imageTempPrefix, verifyTempPrefix, warmTempPrefix, retiredPrefix} {
		left, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil {
			return err
		}
		for _, path := range left {
			if path == keep {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return removeLedger(filepath.Join(dir, restoreTemp))
}

// clearLedger removes the ledger at path for good.
func clearLedger(path string) error {
	if err := removeLedger(path); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// placeLedger moves the verified file at temp to path, where nothing of an older
// ledger remains.
func placeLedger(temp, path string) error {
	if err := removeLedger(path); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// syncFile makes a file, or a directory's entries, durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
