package dirstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/leaseholddb/leasehold/copystore"
)

// CreateFromFile implements [copystore.FileStore]: the object is another name of the
// file, which is on disk before it gets it. A file on another file system has to
// be copied.
func (s *Store) CreateFromFile(ctx context.Context, name, file string) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	if err := s.takeOver(ctx, name, file); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

func (s *Store) takeOver(ctx context.Context, name, file string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", file)
	}
	temp := path.Join(tempDir, rand.Text())
	if err := os.Link(file, filepath.Join(s.root.Name(), filepath.FromSlash(temp))); err != nil {
		if errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EMLINK) {
			return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		return err
	}
	defer s.root.Remove(temp)
	f, err := s.root.Open(temp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.sync(f); err != nil {
		return err
	}
	err = s.link(temp, name)
	if errors.Is(err, os.ErrExist) {
		return s.taken(name)
	}
	if err != nil {
		return err
	}
	return s.syncUp(path.Dir(name))
}
