package blobstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"gocloud.dev/blob"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// Defaults of [Options].
const (
	// DefaultMaxUploads is what a zero Options.MaxUploads means.
	DefaultMaxUploads = 8
	// DefaultMaxDownloads is what a zero Options.MaxDownloads means.
	DefaultMaxDownloads = 32
	// DefaultPartSize is what a zero Options.PartSize means: the smallest part
	// that S3 accepts.
	DefaultPartSize = 5 << 20
)

const (
	contentType = "application/octet-stream"

	// waitReport is how often a call that waits for its turn says so: whoever is
	// before it is bounded, so it is not stalled.
	waitReport = time.Second
)

// Options of [Open] and [New]. The zero value is ready for use.
type Options struct {
	// Prefix of every object, empty or a name that ends with a slash. [Open]
	// takes it from the URL.
	Prefix string
	// MaxUploads and MaxDownloads bound the objects that are created, and those
	// that are open for reading, at one moment; further calls wait for their turn.
	MaxUploads, MaxDownloads int
	// PartSize is up to how many bytes an object is sent at once, and how large the
	// parts of a larger one are. It grows by itself where S3's limit of 10,000
	// parts demands it.
	PartSize int64
}

// Validate names all violations together, with [coord.CodeOptionsInvalid].
func (o Options) Validate() error {
	var bad []string
	if copystore.ValidatePrefix(o.Prefix) != nil {
		bad = append(bad, fmt.Sprintf("Prefix %q is neither empty nor a name followed by a slash", o.Prefix))
	}
	if o.MaxUploads < 0 || o.MaxDownloads < 0 {
		bad = append(bad, "MaxUploads and MaxDownloads must not be negative")
	}
	if o.PartSize != 0 && o.PartSize < DefaultPartSize {
		bad = append(bad, fmt.Sprintf("PartSize %d is less than the %d bytes that S3 demands", o.PartSize, DefaultPartSize))
	}
	if len(bad) > 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "blobstore", Detail: strings.Join(bad, "; ")}
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.MaxUploads == 0 {
		o.MaxUploads = DefaultMaxUploads
	}
	if o.MaxDownloads == 0 {
		o.MaxDownloads = DefaultMaxDownloads
	}
	if o.PartSize == 0 {
		o.PartSize = DefaultPartSize
	}
	return o
}

// A Store is a [copystore.Store] in a bucket. It is safe for concurrent use,
// together with any number of Stores on the same bucket in other processes.
type Store struct {
	bucket    *blob.Bucket
	s3        *direct // nil for a bucket that is not S3
	opts      Options
	uploads   turns
	downloads turns
	hangUp    func() // lets go of idle connections; nil if they are not ours
}

// New returns a store in bucket, which it owns and closes, after proving that the
// bucket keeps the contract: a bucket that does not is refused with [ErrUnfit],
// and one that cannot be reached with its own error. ctx bounds the proof.
func New(ctx context.Context, bucket *blob.Bucket, o Options) (*Store, error) {
	return newStore(ctx, bucket, "", nil, o)
}

func newStore(ctx context.Context, bucket *blob.Bucket, name string, hangUp func(), o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, errors.Join(err, bucket.Close())
	}
	o = o.withDefaults()
	s := &Store{
		bucket: bucket, opts: o, hangUp: hangUp,
		s3:        newDirect(bucket, name, o.PartSize),
		uploads:   make(turns, o.MaxUploads),
		downloads: make(turns, o.MaxDownloads),
	}
	if err := s.probe(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("blobstore: %w", err), s.Close())
	}
	return s, nil
}

// Close waits until failed uploads have been aborted, which is bounded, and ends
// the use of the bucket. No other call may be under way.
func (s *Store) Close() error {
	if s.s3 != nil {
		s.s3.aborts.Wait()
	}
	err := s.bucket.Close()
	if s.hangUp != nil {
		s.hangUp()
	}
	return err
}

// Create implements [copystore.Store].
func (s *Store) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	if err := s.uploads.take(ctx); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	defer s.uploads.give()
	body := &exactReader{ctx: ctx, r: r, left: size}
	w := write{key: s.opts.Prefix + name, attempt: rand.Text()}
	err := s.put(ctx, w, body, size)
	switch {
	case body.failed != nil:
		err = body.failed
	case isTaken(err) || isGone(err):
		err = s.settle(ctx, w, err)
	}
	return explain(ctx, "create", name, err)
}

// A write is one call of Create. The object carries the attempt, so that it can be
// told from anybody else's.
type write struct {
	key     string
	attempt string
}

const attemptKey = "leasehold-attempt"

func (w write) metadata() map[string]string { return map[string]string{attemptKey: w.attempt} }

// settle finds out whose object it is that kept the write out: if an answer was
// lost, the client has repeated the request, and it is our own.
func (s *Store) settle(ctx context.Context, w write, refused error) error {
	found, err := s.bucket.Attributes(ctx, w.key)
	switch {
	case err == nil && found.Metadata[attemptKey] == w.attempt:
		return nil
	case isTaken(refused) && (err == nil || isAbsent(err)):
		return copystore.ErrExists
	case isTaken(refused):
		return err
	}
	return refused
}

// put writes one object if its name is free. Nothing is sent before the reader has
// shown that it has the bytes that go into the request.
func (s *Store) put(ctx context.Context, w write, body io.Reader, size int64) error {
	switch {
	case size <= s.opts.PartSize:
		whole := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
		if _, err := whole.ReadFrom(body); err != nil {
			return err
		}
		return s.write(ctx, w, whole)
	case s.s3 != nil:
		return s.s3.upload(ctx, w, body, size)
	}
	return s.write(ctx, w, body)
}

// write streams into the bucket. A writer that is closed in the context it was
// made with commits what it has, so a failure ends that context first.
func (s *Store) write(ctx context.Context, to write, body io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := s.bucket.NewWriter(ctx, to.key, &blob.WriterOptions{ContentType: contentType, IfNotExist: true, Metadata: to.metadata()})
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, body); err != nil {
		cancel()
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

// Open implements [copystore.Store].
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := copystore.ValidateName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if err := s.downloads.take(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	r, err := s.bucket.NewReader(ctx, s.opts.Prefix+name, nil)
	if err != nil {
		s.downloads.give()
		if isAbsent(err) {
			err = copystore.ErrNotExist
		}
		return nil, explain(ctx, "open", name, err)
	}
	return &objectReader{ctx: ctx, name: name, r: r, turns: s.downloads}, nil
}

// List implements [copystore.Store], in the order of names.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	return func(yield func(copystore.Object, error) bool) {
		if err := copystore.ValidatePrefix(prefix); err != nil {
			yield(copystore.Object{}, err)
			return
		}
		entries := s.bucket.List(&blob.ListOptions{Prefix: s.opts.Prefix + prefix})
		for {
			err := ctx.Err()
			var entry *blob.ListObject
			if err == nil {
				entry, err = entries.Next(ctx)
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(copystore.Object{}, explain(ctx, "list", prefix, err))
				return
			}
			// Buckets may hold what is no object of ours, such as the empty ones
			// that some tools put up as directories.
			name := strings.TrimPrefix(entry.Key, s.opts.Prefix)
			if copystore.ValidateName(name) == nil && !yield(copystore.Object{Name: name, Size: entry.Size}, nil) {
				return
			}
		}
	}
}

// Delete implements [copystore.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return explain(ctx, "delete", name, s.remove(ctx, s.opts.Prefix+name))
}

func (s *Store) remove(ctx context.Context, key string) error {
	if s.s3 != nil {
		return s.s3.delete(ctx, key)
	}
	if err := s.bucket.Delete(ctx, key); !isAbsent(err) {
		return err
	}
	return nil
}
