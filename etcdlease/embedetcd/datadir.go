package embedetcd

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	markFile   = "leasehold-etcd.json"
	lockFile   = "leasehold-etcd.lock"
	markFormat = 1
)

// A mark says which cluster a data directory belongs to.
type mark struct {
	Format int    `json:"format"`
	Token  string `json:"token"` // chosen when the directory was first used
	// Cluster and Member are etcd's ids in hex, empty until the member has come
	// up for the first time.
	Cluster string `json:"cluster,omitempty"`
	Member  string `json:"member,omitempty"`
}

// A dataDir is a data directory that this process has locked.
type dataDir struct {
	path string
	lock *fileutil.LockedFile
	mark mark
}

// openDataDir locks path and reads its mark, or marks it if it is empty.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, dirError(path, "cannot be created", "", err)
	}
	empty, err := isUnused(path)
	if err != nil {
		return nil, dirError(path, "cannot be read", "", err)
	}
	raw, err := os.ReadFile(filepath.Join(path, markFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && !empty:
		return nil, dirError(path, "holds something that no embedded etcd of leasehold made", "choose an empty directory", nil)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, dirError(path, "has an unreadable mark", "", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(path, lockFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fileutil.ErrLocked) {
			return nil, dirError(path, "is in use by another embedded etcd", "choose another directory, or use the endpoints of the one that runs", err)
		}
		return nil, dirError(path, "cannot be locked", "", err)
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.load(raw); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// isUnused reports whether nothing but our lock file lies in path: a start that
// failed between lock and mark leaves one.
func isUnused(path string) (bool, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() != lockFile {
			return false, nil
		}
	}
	return true, nil
}

func (d *dataDir) load(raw []byte) error {
	if raw == nil {
		d.mark = mark{Format: markFormat, Token: rand.Text()}
		return d.save()
	}
	if err := json.Unmarshal(raw, &d.mark); err != nil {
		return dirError(d.path, "has a mark that cannot be read", "restore the file "+markFile+", or choose an empty directory", err)
	}
	if d.mark.Format != markFormat || d.mark.Token == "" {
		return dirError(d.path, fmt.Sprintf("has a mark of format %d", d.mark.Format), "it was made by another version", nil)
	}
	if _, err := os.Stat(filepath.Join(d.path, "member")); d.mark.Member != "" && errors.Is(err, fs.ErrNotExist) {
		return dirError(d.path, "has lost its data", "restore it from a backup; starting afresh would grant epochs a second time", err)
	}
	return nil
}

// confirm remembers the cluster that came up in the directory, and refuses one
// that differs from the remembered.
func (d *dataDir) confirm(cluster, member string) error {
	if d.mark.Member == "" {
		d.mark.Cluster, d.mark.Member = cluster, member
		return d.save()
	}
	if d.mark.Cluster != cluster || d.mark.Member != member {
		return dirError(d.path, fmt.Sprintf("belongs to cluster %s, but holds the data of cluster %s", d.mark.Cluster, cluster),
			"put the right data back, or choose an empty directory", nil)
	}
	return nil
}

// save writes the mark so that a crash leaves the old one or the new one.
func (d *dataDir) save() error {
	raw, err := json.MarshalIndent(d.mark, "", "  ")
	if err != nil {
		return err
	}
	target := filepath.Join(d.path, markFile)
	if err := writeSynced(target+".tmp", append(raw, '\n')); err != nil {
		return dirError(d.path, "cannot be marked", "", err)
	}
	if err := os.Rename(target+".tmp", target); err != nil {
		return dirError(d.path, "cannot be marked", "", err)
	}
	if err := syncDir(d.path); err != nil {
		return dirError(d.path, "cannot be marked", "", err)
	}
	return nil
}

func (d *dataDir) close() { d.lock.Close() }

func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func dirError(path, what, hint string, cause error) error {
	return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "embedded etcd", Detail: "data directory " + path + " " + what, Hint: hint, Err: cause}
}
