package copystore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

// This file is for operators: it needs no lease, and changes nothing in the store.

// A Tree is what the store has of a tenant, along the lineage.
type Tree struct {
	Key coord.Key `json:"key"`
	// Epochs are all that left an object, newest first.
	Epochs []EpochNode `json:"epochs"`
}

// An EpochNode is what the owner of one epoch left.
type EpochNode struct {
	Epoch coord.Epoch `json:"epoch"`
	// Origin is its claim, which names the copy that the epoch hangs on in the
	// tree; nil if there is none that can be believed, and then Problem says why.
	Origin  *Origin `json:"origin"`
	Problem string  `json:"problem,omitempty"`
	// InLineage is whether a restore passes through this epoch.
	InLineage bool       `json:"in_lineage"`
	Copies    []CopyNode `json:"copies"` // newest first
	// Orphans are the names of objects that belong to no copy: what a failed
	// attempt left, or what was never ours. Retention sweeps ours.
	Orphans []string `json:"orphans,omitempty"`
}

// A CopyNode is one copy of an epoch.
type CopyNode struct {
	Ref
	// Manifest is nil if it cannot be believed, and then Problem says why. That a
	// listed image is missing is a Problem too. The image has not been read.
	Manifest *Manifest `json:"manifest"`
	Problem  string    `json:"problem,omitempty"`
	// InLineage is whether a restore may take this copy; the first one of a tree
	// that verifies is what it takes. What a superseded owner uploaded is not.
	InLineage bool `json:"in_lineage"`
}

// Tree returns what the store has of key. It reads every origin and manifest, and
// no image. floor is the tenant's forgotten floor, 0 if it is not known: epochs up
// to it are in nobody's lineage. A tenant without objects has an empty tree.
func (c *Copies) Tree(ctx context.Context, key coord.Key, floor coord.Epoch) (Tree, error) {
	if err := key.Validate(); err != nil {
		return Tree{}, err
	}
	found, err := c.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return Tree{}, err
	}
	lineage, err := c.walk(ctx, key, found, floor)
	if err != nil {
		return Tree{}, err
	}
	t := Tree{Key: key, Epochs: []EpochNode{}}
	for _, e := range found.epochs() {
		node := EpochNode{Epoch: e, InLineage: lineage.epochs[e], Copies: []CopyNode{}, Orphans: found.orphans(e)}
		if node.Origin, node.Problem, err = believed(c.readOrigin(ctx, key, e)); err != nil {
			return Tree{}, err
		}
		for _, seq := range slices.Backward(found.manifests[e]) {
			ref := Ref{Epoch: e, Seq: seq}
			entry := CopyNode{Ref: ref, InLineage: lineage.copies[ref]}
			if entry.Manifest, entry.Problem, err = believed(c.readManifest(ctx, key, ref)); err != nil {
				return Tree{}, err
			}
			if entry.Problem == "" && !found.images[ref] {
				entry.Problem = "image is missing"
			}
			node.Copies = append(node.Copies, entry)
		}
		t.Epochs = append(t.Epochs, node)
	}
	return t, nil
}

// believed turns an object that cannot be trusted into its problem.
func believed[T any](document T, err error) (*T, string, error) {
	if reason, bad := asUntrusted(err); bad {
		return nil, reason, nil
	}
	if err != nil {
		return nil, "", err
	}
	return &document, "", nil
}

// A reach is what a restore may come by.
type reach struct {
	epochs map[coord.Epoch]bool
	copies map[Ref]bool
}

// walk follows the lineage to its end, as a restore does that trusts no copy.
func (c *Copies) walk(ctx context.Context, key coord.Key, found *listing, floor coord.Epoch) (reach, error) {
	r := reach{epochs: make(map[coord.Epoch]bool), copies: make(map[Ref]bool)}
	w, err := lineage{
		listing: found,
		floor:   floor,
		origin:  func(e coord.Epoch) (Origin, error) { return c.readOrigin(ctx, key, e) },
		try:     func(ref Ref) (bool, error) { r.copies[ref] = true; return false, nil },
	}.follow(found.newestClaimed(), 0)
	for _, e := range w.epochs {
		r.epochs[e] = true
	}
	return r, err
}

// Tenants returns the organization's tenants that have objects in the store, in
// the order of their ids.
func (c *Copies) Tenants(ctx context.Context, organization string) ([]coord.Key, error) {
	if err := coord.ValidateOrganization(organization); err != nil {
		return nil, err
	}
	seen := make(map[coord.Key]bool)
	err := c.call(ctx, coord.Key{}, "list "+organization, c.callTimeout, func(ctx context.Context, progress func()) error {
		for o, err := range c.store.List(ctx, organization+"/") {
			if err != nil {
				return err
			}
			progress()
			tenant, _, _ := strings.Cut(strings.TrimPrefix(o.Name, organization+"/"), "/")
			if key, err := coord.NewKey(organization, tenant); err == nil {
				seen[key] = true
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	keys := make([]coord.Key, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b coord.Key) int { return strings.Compare(a.Tenant(), b.Tenant()) })
	return keys, nil
}

// An ExtractRequest says where one copy is brought to and how it is checked. Path
// and Verify are required.
type ExtractRequest struct {
	// Path is where the ledger is put; nothing may be there. The download lies
	// beside it until it is verified.
	Path string
	// Verify is as in [RestoreRequest].
	Verify func(ctx context.Context, path string) (events int64, err error)
	// Progress, if not nil, is told how far the download has come.
	Progress func(Transfer)
}

// Extract puts one copy at req.Path, a file of its own that plain SQLite opens,
// after all the checks of a restore. It needs no lease, and takes copies outside
// the lineage too. A copy that cannot be trusted is refused with
// [coord.RestoreInvalidError], which says why; a file that exists with an error
// that matches [fs.ErrExist]. Then nothing is at Path that was not there before.
func (c *Copies) Extract(ctx context.Context, key coord.Key, ref Ref, req ExtractRequest) (Manifest, error) {
	if err := key.Validate(); err != nil {
		return Manifest{}, err
	}
	if _, err := os.Lstat(req.Path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return Manifest{}, fmt.Errorf("extract to %s: %w", req.Path, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(req.Path), ".extract-")
	if err != nil {
		return Manifest{}, fmt.Errorf("extract: %w", err)
	}
	defer os.RemoveAll(dir)
	f := fetcher{copies: c, key: key, temp: filepath.Join(dir, "ledger.db"), verify: req.Verify, progress: req.Progress}
	m, err := f.fetch(ctx, ref)
	if reason, bad := asUntrusted(err); bad {
		return Manifest{}, &coord.RestoreInvalidError{Key: key, Skipped: []coord.SkippedCopy{{Epoch: ref.Epoch, Seq: ref.Seq, Reason: reason}}}
	}
	if err != nil {
		return Manifest{}, err
	}
	if err := syncFile(f.temp); err != nil {
		return Manifest{}, fmt.Errorf("extract: %w", err)
	}
	// A link, unlike a renaming, replaces nothing that came up meanwhile.
	if err := os.Link(f.temp, req.Path); err != nil {
		return Manifest{}, fmt.Errorf("extract: %w", err)
	}
	if err := syncFile(filepath.Dir(req.Path)); err != nil {
		return Manifest{}, fmt.Errorf("extract: %w", err)
	}
	return m, nil
}

// ExtractNewest brings what a restore would start from to req.Path: the newest copy
// of the lineage that verifies. floor is the tenant's forgotten floor, 0 if it is
// not known. It returns the copies that it passed over too, newest first. Without
// any copy in the lineage it fails with [coord.CodeTenantUnknown], and with
// [coord.RestoreInvalidError] if none can be trusted.
func (c *Copies) ExtractNewest(ctx context.Context, key coord.Key, floor coord.Epoch, req ExtractRequest) (Manifest, []coord.SkippedCopy, error) {
	if err := key.Validate(); err != nil {
		return Manifest{}, nil, err
	}
	found, err := c.list(ctx, key, tenantPrefix(key))
	if err != nil {
		return Manifest{}, nil, err
	}
	var newest Manifest
	var skipped []coord.SkippedCopy
	w, err := lineage{
		listing: found,
		floor:   floor,
		origin:  func(e coord.Epoch) (Origin, error) { return c.readOrigin(ctx, key, e) },
		try: func(ref Ref) (bool, error) {
			m, err := c.Extract(ctx, key, ref, req)
			var invalid *coord.RestoreInvalidError
			if errors.As(err, &invalid) {
				skipped = append(skipped, invalid.Skipped...)
				return false, nil
			}
			newest = m
			return err == nil, err
		},
	}.follow(found.newestClaimed(), 0)
	switch {
	case err != nil || w.taken:
		return newest, skipped, err
	case !w.copies && w.broken == "":
		return Manifest{}, nil, &coord.Error{Code: coord.CodeTenantUnknown, Op: "extract", Key: key, Detail: "its lineage holds no copy"}
	case w.broken != "":
		skipped = append(skipped, coord.SkippedCopy{Epoch: w.epochs[len(w.epochs)-1], Reason: w.broken})
	}
	return Manifest{}, skipped, &coord.RestoreInvalidError{Key: key, Skipped: skipped}
}

// Verify proves that a copy could be restored: it downloads the copy into a new
// directory below dir, puts it through all the checks of a restore, and removes
// it. Errors are those of [Copies.Extract].
func (c *Copies) Verify(ctx context.Context, key coord.Key, ref Ref, dir string, req ExtractRequest) (Manifest, error) {
	if err := key.Validate(); err != nil {
		return Manifest{}, err
	}
	temp, err := os.MkdirTemp(dir, verifyTempPrefix)
	if err != nil {
		return Manifest{}, fmt.Errorf("verify: %w", err)
	}
	defer os.RemoveAll(temp)
	req.Path = filepath.Join(temp, "copy.db")
	return c.Extract(ctx, key, ref, req)
}
