package copystore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leaseholddb/leasehold/coord"
)

// A Warm is a copy that was fetched and verified before the lease was there, so that
// a restore which chooses exactly this copy has nothing left to download. It decides
// nothing: what is restored is what the lineage says after the grant. It lives in
// memory; what a crash leaves of it on the disk is never believed.
type Warm struct {
	manifest Manifest
	path     string
	info     os.FileInfo // as the file was when it had been verified
}

// Warm fetches the newest copy of key's lineage that verifies, by all the checks of a
// restore, into a directory of its own below dir, which is made if need be. Path of req
// is not heeded. floor is the tenant's forgotten floor. It needs no lease. Without any
// copy it fails with [coord.CodeTenantUnknown], and with [coord.RestoreInvalidError] if
// none can be trusted. Whoever gets a Warm has to discard it.
func (c *Copies) Warm(ctx context.Context, key coord.Key, floor coord.Epoch, dir string, req ExtractRequest) (*Warm, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("warm: %w", err)
	}
	temp, err := os.MkdirTemp(dir, warmTempPrefix)
	if err != nil {
		return nil, fmt.Errorf("warm: %w", err)
	}
	req.Path = filepath.Join(temp, "copy.db")
	w := &Warm{path: req.Path}
	if w.manifest, _, err = c.ExtractNewest(ctx, key, floor, req); err == nil {
		w.info, err = os.Lstat(req.Path)
	}
	if err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	return w, nil
}

// Ref names the copy.
func (w *Warm) Ref() Ref { return w.manifest.Ref() }

// Discard removes what is left of the file. It may be called more than once, and on nil.
func (w *Warm) Discard() error {
	if w == nil {
		return nil
	}
	return os.RemoveAll(filepath.Dir(w.path))
}

// move puts the file at path if it is the copy that m describes, as it was verified.
func (w *Warm) move(m Manifest, path string) bool {
	if w == nil || w.manifest.Key != m.Key || w.Ref() != m.Ref() || w.manifest.Size != m.Size || w.manifest.SHA256 != m.SHA256 || w.manifest.Events != m.Events {
		return false
	}
	now, err := os.Lstat(w.path)
	if err != nil || !os.SameFile(now, w.info) || now.Size() != m.Size || !now.ModTime().Equal(w.info.ModTime()) {
		return false // whatever it is now, it is not what was verified
	}
	return removeLedger(path) == nil && os.Rename(w.path, path) == nil
}

// dir is where the file is; empty for nil.
func (w *Warm) dir() string {
	if w == nil {
		return ""
	}
	return filepath.Dir(w.path)
}
