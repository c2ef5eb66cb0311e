// Package memstore is a [copystore.Store] in memory, for simulation and tests. It
// keeps the whole contract except that nothing outlives the process.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/leaseholddb/leasehold/copystore"
)

// A Store holds objects in memory. It is safe for concurrent use, starts no
// goroutines, and lists in the order of names, so that the same calls always
// give the same answers.
type Store struct {
	mu struct {
		sync.Mutex
		objects map[string][]byte // the values never change
	}
}

// New returns an empty store.
func New() *Store {
	s := &Store{}
	s.mu.objects = make(map[string][]byte)
	return s
}

// Create implements [copystore.Store].
func (s *Store) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	body, err := readAll(ctx, r, size)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.mu.objects[name]; taken {
		return fmt.Errorf("create %s: %w", name, copystore.ErrExists)
	}
	s.mu.objects[name] = body
	return nil
}

func readAll(ctx context.Context, r io.Reader, size int64) ([]byte, error) {
	var body bytes.Buffer
	_, err := io.Copy(&body, io.LimitReader(&contextReader{ctx, r}, size+1))
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case int64(body.Len()) != size:
		return nil, fmt.Errorf("the reader does not yield the %d bytes that were announced", size)
	}
	return body.Bytes(), nil
}

// Open implements [copystore.Store].
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := copystore.ValidateName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s.mu.Lock()
	body, found := s.mu.objects[name]
	s.mu.Unlock()
	if !found {
		return nil, fmt.Errorf("open %s: %w", name, copystore.ErrNotExist)
	}
	return io.NopCloser(&contextReader{ctx, bytes.NewReader(body)}), nil
}

// List implements [copystore.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	return func(yield func(copystore.Object, error) bool) {
		err := copystore.ValidatePrefix(prefix)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(copystore.Object{}, fmt.Errorf("list %s: %w", prefix, err))
			return
		}
		for _, o := range s.snapshot(prefix) {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (s *Store) snapshot(prefix string) []copystore.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []copystore.Object
	for _, name := range slices.Sorted(maps.Keys(s.mu.objects)) {
		if strings.HasPrefix(name, prefix) {
			objects = append(objects, copystore.Object{Name: name, Size: int64(len(s.mu.objects[name]))})
		}
	}
	return objects
}

// Delete implements [copystore.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.objects, name)
	return nil
}

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
