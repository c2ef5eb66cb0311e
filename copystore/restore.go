package copystore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// A RestoreRequest says where a ledger is to be restored and how it is checked.
// All fields but Warm and Progress are required.
type RestoreRequest struct {
	// Path is the ledger's main file. Its directory is made if need be, belongs to
	// the tenant alone, and is where the copy is downloaded before it is
	// believed.
	Path string
	// Verify checks the downloaded file at path, which is not Path, without
	// changing it, and returns how many events it holds. It refuses a file that
	// must not be served with [coord.CodeLedgerInvalid]; then the next older
	// copy is tried. Any other error means that the file could not be checked,
	// and fails the restore.
	Verify func(ctx context.Context, path string) (events int64, err error)
	// StillHeld returns an error if the tenure is over, better by asking the
	// lease store than by a clock. It is asked before the file at Path is
	// touched, and when the restore fails; its error is returned rather than
	// Restore's own, for what a superseded owner sees says nothing about the
	// store.
	StillHeld func() error
	// Prove returns nil only if the lease is held at the moment of the call.
	Prove func() error
	// Warm, if not nil, saves the download if the lineage leads to exactly this copy
	// and its file has not changed since it was verified. Its file is then used up.
	Warm *Warm
	// Progress, if not nil, is told how far each download has come.
	Progress func(Transfer)
}

func (r RestoreRequest) validate() error {
	if r.Path == "" || r.Verify == nil || r.StillHeld == nil || r.Prove == nil {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "restore", Detail: "Path, Verify, StillHeld and Prove are required"}
	}
	return nil
}

// A Restored says what a restore found.
type Restored struct {
	// Manifest is that of the copy that was put in place; nil if the tenant has
	// no copy and its ledger starts empty, in which case no file is at Path.
	Manifest *Manifest
	// Skipped are the newer copies that were not trusted, newest first.
	Skipped []coord.SkippedCopy
}

// From returns what [Copies.Claim] has to name: the restored copy, or nil.
func (r Restored) From() *Ref {
	if r.Manifest == nil {
		return nil
	}
	ref := r.Manifest.Ref()
	return &ref
}

// Restore puts the newest copy of the lineage that verifies at req.Path, or
// removes what is there if the tenant has no copy. The file at Path and its
// journals are touched only once a verified file stands ready beside them;
// they never survive a successful restore.
//
// It fails with [coord.CodeEpochRolledBack] if the store holds anything of the
// granted epoch or a newer one, or a copy of an older epoch that was granted at a later
// revision and not raised above since, then again until [Copies.ClearRollback], with [coord.RestoreInvalidError] if copies exist
// and none can be trusted (Seq 0 in its list stands for an epoch's origin), with
// [coord.CodeCopyStoreUnavailable] if the store could not be read, and with
// StillHeld's error in place of any of these if there is one.
func (c *Copies) Restore(ctx context.Context, grant coord.Grant, req RestoreRequest) (Restored, error) {
	if err := grant.Tenure.Validate(); err != nil {
		return Restored{}, err
	}
	if err := req.validate(); err != nil {
		return Restored{}, err
	}
	r := restoration{grant: grant, req: req, fetcher: fetcher{
		copies: c, key: grant.Key, verify: req.Verify, progress: req.Progress,
		temp: filepath.Join(filepath.Dir(req.Path), restoreTemp),
	}}
	err := r.run(ctx)
	if err == nil {
		return r.result, nil
	}
	if held := req.StillHeld(); held != nil {
		return Restored{}, fmt.Errorf("%w (while restoring: %v)", held, err)
	}
	if errors.Is(err, coord.CodeEpochRolledBack) && req.Prove() == nil {
		err = errors.Join(err, c.markRollback(ctx, grant))
	}
	return Restored{}, err
}

// A restoration is one call of Restore.
type restoration struct {
	fetcher
	grant  coord.Grant
	req    RestoreRequest
	result Restored
}

func (r *restoration) run(ctx context.Context) error {
	dir := filepath.Dir(r.req.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := sweepTemps(dir, r.req.Warm.dir()); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer removeLedger(r.temp)
	if err := r.choose(ctx); err != nil {
		return err
	}
	// The directory may by now belong to a later tenure of this replica.
	if err := r.req.StillHeld(); err != nil {
		return err
	}
	if r.result.Manifest == nil {
		return clearLedger(r.req.Path)
	}
	return placeLedger(r.temp, r.req.Path)
}

// choose leaves the newest copy that verifies at r.temp and its manifest in the
// result.
func (r *restoration) choose(ctx context.Context) error {
	key := r.grant.Key
	found, err := r.copies.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return err
	}
	if (found.rolledBack || found.newest() >= r.grant.Epoch) && !safeguards.Off(safeguards.RollbackDetection) {
		return rolledBack(r.grant, found)
	}
	floor := r.grant.ForgottenAt
	if safeguards.Off(safeguards.FloorCheck) {
		floor = 0
	}
	line := lineage{
		listing: found,
		floor:   floor,
		origin:  func(e coord.Epoch) (Origin, error) { return r.origin(ctx, e) },
		try:     func(ref Ref) (bool, error) { return r.try(ctx, ref) },
	}
	w, err := line.follow(found.newestClaimed(), 0)
	if err != nil || w.taken {
		return err
	}
	if w.broken != "" {
		r.skip(Ref{Epoch: w.epochs[len(w.epochs)-1]}, w.broken)
	}
	if w.copies || w.broken != "" {
		return &coord.RestoreInvalidError{Key: key, Skipped: r.result.Skipped}
	}
	return nil
}

// try downloads and verifies one copy; a copy that cannot be trusted is noted and
// not taken.
func (r *restoration) try(ctx context.Context, ref Ref) (bool, error) {
	m, err := r.bring(ctx, ref)
	if reason, bad := asUntrusted(err); bad {
		r.skip(ref, reason)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := r.inOrder(m.Epoch, m.Revision); err != nil {
		return false, err
	}
	r.result.Manifest = &m
	return true, nil
}

func (r *restoration) origin(ctx context.Context, epoch coord.Epoch) (Origin, error) {
	o, err := r.copies.readOrigin(ctx, r.key, epoch)
	if err != nil {
		return Origin{}, err
	}
	return o, r.inOrder(epoch, o.Revision)
}

// bring leaves a copy that can be trusted at temp.
func (r *restoration) bring(ctx context.Context, ref Ref) (Manifest, error) {
	if r.req.Warm == nil || r.req.Warm.Ref() != ref {
		return r.fetch(ctx, ref)
	}
	m, err := r.copies.readManifest(ctx, r.key, ref)
	if err != nil {
		return Manifest{}, err
	}
	if r.req.Warm.move(m, r.temp) {
		return m, nil
	}
	return r.fetch(ctx, ref)
}

func (r *restoration) skip(ref Ref, reason string) {
	r.result.Skipped = append(r.result.Skipped, coord.SkippedCopy{Epoch: ref.Epoch, Seq: ref.Seq, Reason: reason})
}
