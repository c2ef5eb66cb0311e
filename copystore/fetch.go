package copystore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leaseholddb/leasehold/coord"
)

// A fetcher brings copies of one tenant to a temporary file and verifies them
// there.
type fetcher struct {
	copies   *Copies
	key      coord.Key
	temp     string // where copies are downloaded to
	verify   func(ctx context.Context, path string) (events int64, err error)
	progress func(Transfer)
}

// fetch leaves a copy that can be trusted at temp, or fails with an
// untrustedError.
func (f *fetcher) fetch(ctx context.Context, ref Ref) (Manifest, error) {
	m, err := f.copies.readManifest(ctx, f.key, ref)
	if err != nil {
		return Manifest{}, err
	}
	if err := f.download(ctx, m); err != nil {
		return Manifest{}, err
	}
	events, err := f.verify(ctx, f.temp)
	switch {
	case err == nil && events != m.Events:
		return Manifest{}, untrusted("the image holds %d events, the manifest says %d", events, m.Events)
	case err == nil:
		return m, nil
	case ctx.Err() == nil && errors.Is(err, coord.CodeLedgerInvalid):
		return Manifest{}, untrusted("%v", err)
	}
	return Manifest{}, fmt.Errorf("restore: verify %s: %w", ref, err)
}

// download leaves the image at temp, with the manifest's size and hash. It is not
// brought to the disk: after a crash of the host no local ledger is ever believed,
// and an extracted one is synced before it gets its name.
func (f *fetcher) download(ctx context.Context, m Manifest) error {
	if err := removeLedger(f.temp); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	file, err := os.OpenFile(f.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer file.Close()
	dst := &transferWriter{w: file, report: newReport(f.progress, m.Key, m.Ref(), m.Size)}
	got, err := f.copies.download(ctx, m.Key, imageName(m.Key, m.Ref()), dst, m.Size)
	switch {
	case errors.Is(err, ErrNotExist):
		return untrusted("image is missing")
	case err != nil:
		return err
	case got.size > m.Size:
		return untrusted("image is longer than the %d bytes of the manifest", m.Size)
	case got.size < m.Size:
		return untrusted("image has %d bytes, the manifest says %d", got.size, m.Size)
	case got.sha256 != m.SHA256:
		return untrusted("image has another SHA-256 than the manifest says")
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}
