package dirstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

const (
	// DefaultSweepAge is what a zero Options.SweepAge means.
	DefaultSweepAge = time.Hour

	// No name has a part that starts with a dot, so this is never an object.
	tempDir = ".tmp"

	// maxMakeDir is how often a directory may go while it is being made.
	maxMakeDir = 100
)

// Options of [New]. The zero value is ready for use.
type Options struct {
	// SweepAge is how long a temporary file must have been left alone before
	// [New] takes it for that of a dead process; 0 means [DefaultSweepAge]. An
	// upload whose file is taken away fails, and leaves nothing.
	SweepAge time.Duration
}

// Validate names all violations together, with [coord.CodeOptionsInvalid].
func (o Options) Validate() error {
	if o.SweepAge < 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "dirstore", Detail: fmt.Sprintf("SweepAge %v is negative", o.SweepAge)}
	}
	return nil
}

// A Store is a [copystore.Store] in a directory. It is safe for concurrent use,
// together with any number of Stores on the same directory in this and other
// processes. It starts no goroutines.
type Store struct {
	root *os.Root // nothing outside is reachable, through symbolic links neither
	sync func(*os.File) error

	known known
}

// New opens the store in dir, which is made if need be and made durable with its
// new parents. It sweeps temporary files that dead processes left, and refuses a
// file system that cannot make hard links.
func New(dir string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.SweepAge == 0 {
		o.SweepAge = DefaultSweepAge
	}
	if err := makeRoot(dir); err != nil {
		return nil, fmt.Errorf("dirstore: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("dirstore: %w", err)
	}
	s := &Store{root: root, sync: (*os.File).Sync}
	if err := s.prepare(o.SweepAge); err != nil {
		root.Close()
		return nil, fmt.Errorf("dirstore: %s: %w", dir, err)
	}
	return s, nil
}

// Close ends the use of the directory. Calls under way may fail; the objects
// stay.
func (s *Store) Close() error { return s.root.Close() }

// Create implements [copystore.Store].
func (s *Store) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	if err := s.create(ctx, name, r, size); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

func (s *Store) create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Saves the transfer; what decides is the link.
	if _, err := s.root.Lstat(name); err == nil {
		return s.taken(name)
	}
	temp := path.Join(tempDir, rand.Text())
	defer s.root.Remove(temp)
	if err := s.writeTemp(ctx, temp, r, size); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.link(temp, name)
	if errors.Is(err, fs.ErrExist) {
		return s.taken(name)
	}
	if err != nil {
		return err
	}
	return s.syncUp(path.Dir(name))
}

// taken reports that a name has an object, after making sure that it will still
// have it after a power failure: whoever made it may not have come that far.
func (s *Store) taken(name string) error {
	if err := s.syncUp(path.Dir(name)); err != nil {
		return err
	}
	return copystore.ErrExists
}

func (s *Store) writeTemp(ctx context.Context, temp string, r io.Reader, size int64) error {
	f, err := s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// One byte beyond the size is enough to refuse the reader.
	n, err := io.CopyBuffer(onlyWriter{f}, &contextReader{ctx, io.LimitReader(r, size+1)}, make([]byte, min(bufferSize, size+1)))
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("the reader does not yield the %d bytes that were announced", size)
	}
	if err := s.sync(f); err != nil {
		return err
	}
	return f.Close()
}

// link gives temp its name. A delete may remove the directory in between as an
// empty one; then it is made again.
func (s *Store) link(temp, name string) error {
	for attempt := 0; ; attempt++ {
		err := s.root.MkdirAll(path.Dir(name), 0o700)
		// A directory that comes and goes meanwhile is said to exist; that must not
		// be taken for the object.
		if errors.Is(err, fs.ErrExist) && attempt == maxMakeDir {
			return fmt.Errorf("make the directory: %v", err)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err = s.root.Link(temp, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, gone := s.root.Lstat(temp); gone != nil {
			return fmt.Errorf("the temporary file was taken away: %w", gone)
		}
	}
}

// Open implements [copystore.Store].
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := copystore.ValidateName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	info, err := s.root.Lstat(name)
	if isAbsent(err) || err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w", name, copystore.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	f, err := s.root.Open(name)
	if isAbsent(err) {
		return nil, fmt.Errorf("open %s: %w", name, copystore.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &objectReader{contextReader{ctx, f}, f}, nil
}

// List implements [copystore.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	return func(yield func(copystore.Object, error) bool) {
		err := copystore.ValidatePrefix(prefix)
		if err == nil {
			err = s.walk(ctx, path.Clean("./"+prefix), func(o copystore.Object) bool { return yield(o, nil) })
		}
		if err != nil {
			yield(copystore.Object{}, fmt.Errorf("list %s: %w", prefix, err))
		}
	}
}

// walk yields the objects below dir until yield returns false. What is not a
// regular file of a valid name is no object.
func (s *Store) walk(ctx context.Context, dir string, yield func(copystore.Object) bool) error {
	return fs.WalkDir(s.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isAbsent(err) {
			return nil // deleted meanwhile, or never there
		}
		if err != nil {
			return err
		}
		if name == tempDir {
			return fs.SkipDir
		}
		// An object that has the prefix's own name is not below it.
		if !d.Type().IsRegular() || name == dir || copystore.ValidateName(name) != nil {
			return nil
		}
		info, err := d.Info()
		if isAbsent(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !yield(copystore.Object{Name: name, Size: info.Size()}) {
			return fs.SkipAll
		}
		return nil
	})
}

// Delete implements [copystore.Store]. Directories that it leaves empty go too.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	if err := s.delete(ctx, name); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := s.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = s.root.Remove(name)
	}
	if err != nil && !isAbsent(err) {
		return err
	}
	// Also when the object was gone: whoever removed it may not have come this
	// far.
	return s.prune(path.Dir(name))
}

// prune removes dir and its parents as far as they are empty, and makes the
// nearest one that stays durable.
func (s *Store) prune(dir string) error {
	for dir != "." {
		info, err := s.root.Lstat(dir)
		if err == nil && !info.IsDir() {
			break // a link that an operator made
		}
		if err == nil {
			err = s.root.Remove(dir)
		}
		if err != nil && !isAbsent(err) {
			break // it is not empty
		}
		dir = path.Dir(dir)
	}
	return s.syncNearest(dir)
}

func isAbsent(err error) bool {
	// A part of the name that is a file has nothing below it.
	return errors.Is(err, fs.ErrNotExist) || isNotDirectory(err)
}

const bufferSize = 256 << 10

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

type objectReader struct {
	contextReader
	io.Closer
}

// onlyWriter hides ReadFrom, which would not look at the context.
type onlyWriter struct{ io.Writer }
