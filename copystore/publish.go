package copystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// A Publisher writes the copies of one tenure. Only a claim makes one. It is safe
// for concurrent use: publishes run one at a time, in the order of the calls.
type Publisher struct {
	copies   *Copies
	tenure   coord.Tenure
	revision coord.Revision
	floor    coord.Epoch
	origin   Origin
	turns    turns

	mu struct {
		sync.Mutex
		listed bool      // whether seq is known from the store
		seq    uint64    // the highest one used
		last   *Manifest // of the newest committed copy of this tenure
		held   map[Ref]int
	}
}

// ErrNotNeeded is returned by [Publisher.Publish] when [PublishRequest.Needed] says
// so. Nothing was asked of the store.
var ErrNotNeeded = errors.New("copystore: the copy is not needed")

// A PublishRequest says how an image is taken and how the lease is proved. All
// fields but Needed, Committed and Progress are required.
type PublishRequest struct {
	// Needed is asked once it is this publish's turn, that is after those before
	// it have ended. Nil means always.
	Needed func() bool
	// Dir is an existing directory that belongs to the tenant alone. The image
	// lies there until it is uploaded.
	Dir string
	// TakeImage writes a consistent image of the ledger to a new file at path and
	// returns how many events it holds.
	TakeImage func(ctx context.Context, path string) (events int64, err error)
	// Prove returns nil only if the lease is held at the moment of the call.
	Prove func() error
	// Committed, if not nil, is called once the copy is, before it is the next publish's
	// turn, which may ask Needed.
	Committed func()
	// Progress, if not nil, is told how far the upload has come.
	Progress func(Transfer)
}

// Last returns the manifest of the newest copy that this tenure committed, and
// false if there is none yet. Then the newest copy is the one restored, if any.
func (p *Publisher) Last() (Manifest, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.last == nil {
		return Manifest{}, false
	}
	return *p.mu.last, true
}

// Publish takes an image and commits it as a copy: it proves the lease, takes and
// uploads the image, proves the lease, writes the manifest and proves the lease
// once more. Only if it returns nil is the copy committed; then whatever the
// image holds is in every later ledger, unless the copy itself is damaged. After
// an error the copy may nevertheless be in the store, and a successor may start
// from it.
//
// Errors of TakeImage and Prove are returned wrapped. A store that fails is
// [coord.CodeCopyStoreUnavailable], and a retry is a new attempt under a new seq.
// An object of somebody else where only this tenure may write is
// [coord.CodeCopyConflict]. While another publish runs, Publish waits for its
// turn until ctx ends.
func (p *Publisher) Publish(ctx context.Context, req PublishRequest) (Manifest, error) {
	if err := p.turns.take(ctx); err != nil {
		return Manifest{}, err
	}
	defer p.turns.give()

	if req.Needed != nil && !req.Needed() {
		return Manifest{}, ErrNotNeeded
	}
	if err := p.learnSeq(ctx); err != nil {
		return Manifest{}, err
	}
	if err := req.Prove(); err != nil {
		return Manifest{}, fmt.Errorf("publish: before the image: %w", err)
	}
	m, err := p.publishImage(ctx, req)
	if err != nil {
		return Manifest{}, err
	}
	if err := req.Prove(); err != nil {
		return Manifest{}, fmt.Errorf("publish: before the manifest: %w", err)
	}
	if err := p.createManifest(ctx, m); err != nil {
		return Manifest{}, err
	}
	if err := req.Prove(); err != nil {
		return Manifest{}, fmt.Errorf("publish: after the manifest: %w", err)
	}
	p.commit(m)
	if req.Committed != nil {
		req.Committed()
	}
	return m, nil
}

// learnSeq finds out which seqs of this epoch are used. The store is asked, once:
// files of this host know nothing of attempts whose answer was lost.
func (p *Publisher) learnSeq(ctx context.Context) error {
	p.mu.Lock()
	listed := p.mu.listed
	p.mu.Unlock()
	if listed {
		return nil
	}
	found, err := p.copies.list(ctx, p.tenure.Key, epochPrefix(p.tenure.Key, p.tenure.Epoch))
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.listed, p.mu.seq = true, found.newestSeq(p.tenure.Epoch)
	return nil
}

// nextCopy uses up a seq and returns the new copy and the one before it.
func (p *Publisher) nextCopy() (ref Ref, parent *Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.seq++
	switch {
	case p.mu.last != nil:
		last := p.mu.last.Ref()
		parent = &last
	case p.origin.From != nil:
		parent = new(*p.origin.From)
	}
	return Ref{Epoch: p.tenure.Epoch, Seq: p.mu.seq}, parent
}

func (p *Publisher) commit(m Manifest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.last = &m
}

// publishImage takes and uploads an image and returns the manifest that it
// needs.
func (p *Publisher) publishImage(ctx context.Context, req PublishRequest) (Manifest, error) {
	path := imageTemp(req.Dir, p.tenure.Epoch)
	if err := removeLedger(path); err != nil {
		return Manifest{}, fmt.Errorf("publish: %w", err)
	}
	defer removeLedger(path)
	events, err := req.TakeImage(ctx, path)
	if err != nil {
		return Manifest{}, fmt.Errorf("publish: take the image: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("publish: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Manifest{}, fmt.Errorf("publish: %w", err)
	}
	if info.Size() == 0 {
		return Manifest{}, fmt.Errorf("publish: the image of %s is empty", p.tenure.Key)
	}
	ref, parent := p.nextCopy()
	m := Manifest{
		Format:   FormatVersion,
		Key:      p.tenure.Key,
		Epoch:    ref.Epoch,
		Revision: p.revision,
		Seq:      ref.Seq,
		Owner:    p.tenure.Owner,
		Time:     NewTimestamp(p.copies.clock.Wall()),
		Events:   events,
		Parent:   parent,
	}
	if safeguards.Off(safeguards.ManifestLast) {
		if err := p.manifestFirst(ctx, m, f); err != nil {
			return Manifest{}, err
		}
	}
	d, err := p.createImage(ctx, ref, f, info.Size(), req.Progress)
	if err != nil {
		return Manifest{}, err
	}
	m.Size, m.SHA256 = d.size, d.sha256
	return m, nil
}

// createImage uploads f. A name that is taken by exactly these bytes is ours: the
// store repeated an upload of its own whose answer was lost.
func (p *Publisher) createImage(ctx context.Context, ref Ref, f *os.File, size int64, progress func(Transfer)) (digest, error) {
	key, name := p.tenure.Key, imageName(p.tenure.Key, ref)
	src := &transferReader{f, newReport(progress, key, ref, size)}
	d, err := p.copies.handOver(ctx, key, name, f.Name(), src)
	if errors.Is(err, errors.ErrUnsupported) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return digest{}, fmt.Errorf("publish: %w", err)
		}
		src.report = newReport(progress, key, ref, size)
		d, err = p.copies.upload(ctx, key, name, src, size)
	}
	if !errors.Is(err, ErrExists) {
		return d, err
	}
	want, err := measure(f)
	if err != nil {
		return digest{}, fmt.Errorf("publish: %w", err)
	}
	found, err := p.copies.download(ctx, key, name, io.Discard, size)
	if errors.Is(err, ErrNotExist) {
		return digest{}, conflict("publish", key, name+" was there and is gone")
	}
	if err != nil {
		return digest{}, err
	}
	if found != want {
		return digest{}, conflict("publish", key, name+" is somebody else's")
	}
	return want, nil
}

func (p *Publisher) createManifest(ctx context.Context, m Manifest) error {
	body, err := m.Encode()
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	name := manifestName(m.Key, m.Ref())
	err = p.copies.createDocument(ctx, m.Key, name, body)
	if !errors.Is(err, ErrExists) {
		return err
	}
	found, err := p.copies.readDocument(ctx, m.Key, name)
	if errors.Is(err, ErrNotExist) || err == nil && !bytes.Equal(found, body) {
		return conflict("publish", m.Key, name+" is somebody else's")
	}
	return err
}

// measure reads f from its beginning.
func measure(f io.ReadSeeker) (digest, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return digest{}, err
	}
	return digestOf(f)
}

// manifestFirst is the wrong order, for the simulation to notice.
func (p *Publisher) manifestFirst(ctx context.Context, m Manifest, f io.ReadSeeker) error {
	d, err := measure(f)
	if err != nil {
		return err
	}
	m.Size, m.SHA256 = d.size, d.sha256
	return p.createManifest(ctx, m)
}
