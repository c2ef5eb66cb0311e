package dirstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxKnown is how many directories are remembered. Forgetting one costs a flush.
const maxKnown = 10_000

// An identity is a directory's, for as long as the file system exists.
type identity struct {
	device, number uint64
	seconds        int64
	nanoseconds    uint32
}

// known holds the directories that are durable in everything above them: a flush of
// something clean costs as much as another.
type known struct {
	sync.Mutex
	names map[string]identity
}

func (k *known) has(name string, id identity) bool {
	k.Lock()
	defer k.Unlock()
	return k.names[name] == id
}

func (k *known) add(name string, id identity) {
	k.Lock()
	defer k.Unlock()
	if k.names == nil || len(k.names) >= maxKnown {
		k.names = make(map[string]identity)
	}
	k.names[name] = id
}

// syncUp makes dir durable, and its own way from the root. A directory that another
// process has just made may not be durable yet, so finding one does not count: only one
// that was found before, and synced above, does.
func (s *Store) syncUp(dir string) error {
	if err := s.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A directory has its entry in the one above it, which cannot go before it does.
	reached := make(map[string]identity)
	for dir != "." {
		id, certain, err := s.identityOf(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if certain && s.known.has(dir, id) {
			break
		}
		if certain {
			reached[dir] = id
		}
		dir = path.Dir(dir)
		if err := s.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name, id := range reached {
		s.known.add(name, id)
	}
	return nil
}

// identityOf returns false if it is not certain.
func (s *Store) identityOf(dir string) (id identity, certain bool, err error) {
	d, err := s.root.Open(dir)
	if err != nil {
		return identity{}, false, err
	}
	defer d.Close()
	id, certain = identify(d)
	return id, certain, nil
}

// syncNearest makes dir durable, or the nearest directory above it that is still
// there.
func (s *Store) syncNearest(dir string) error {
	for {
		err := s.syncDir(dir)
		if dir == "." || !isAbsent(err) {
			return err
		}
		dir = path.Dir(dir)
	}
}

func (s *Store) syncDir(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return s.sync(d)
}

// makeRoot makes dir and its missing parents, each durable in its own parent.
func makeRoot(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var made []string
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return err
	}
	for _, at := range made {
		parent, err := os.Open(filepath.Dir(at))
		if err != nil {
			return err
		}
		err = parent.Sync()
		parent.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the directory of temporary files, sweeps it, and tries a link.
func (s *Store) prepare(sweepAge time.Duration) error {
	if err := s.root.MkdirAll(tempDir, 0o700); err != nil {
		return err
	}
	if err := s.sweep(time.Now().Add(-sweepAge)); err != nil {
		return err
	}
	return s.probe()
}

// sweep removes temporary files last written before then.
func (s *Store) sweep(then time.Time) error {
	entries, err := fs.ReadDir(s.root.FS(), tempDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.ModTime().After(then) {
			continue
		}
		if err := s.root.Remove(path.Join(tempDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// probe refuses a file system where linking does not work, or does not notice
// that a name is taken.
func (s *Store) probe() error {
	from, to := path.Join(tempDir, rand.Text()), path.Join(tempDir, rand.Text())
	f, err := s.root.OpenFile(from, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	defer s.root.Remove(from)
	if err := s.root.Link(from, to); err != nil {
		return fmt.Errorf("the file system makes no hard links, which copies need: %w", err)
	}
	defer s.root.Remove(to)
	if err := s.root.Link(from, to); !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the file system does not refuse a link to a name that is taken: got %v", err)
	}
	return nil
}

func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
