package copystore_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"strings"
	"sync/atomic"

	"github.com/leaseholddb/leasehold/copystore"
)

var errFault = errors.New("injected fault")

// stepped calls hook around every call of a store, with its number from 1, its
// text, and whether it is over. An error of the hook before the call keeps it
// from happening, one after it replaces the answer: applied but reported as
// failed.
type stepped struct {
	copystore.Store
	calls atomic.Int64
	hook  func(n int, call string, over bool) error
}

func (s *stepped) step(call string, do func() error) error {
	n := int(s.calls.Add(1))
	if err := s.hook(n, call, false); err != nil {
		return err
	}
	err := do()
	if fault := s.hook(n, call, true); fault != nil {
		return fault
	}
	return err
}

func (s *stepped) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	return s.step("create "+base(name), func() error { return s.Store.Create(ctx, name, r, size) })
}

func (s *stepped) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	var r io.ReadCloser
	err := s.step("open "+base(name), func() (err error) {
		r, err = s.Store.Open(ctx, name)
		return err
	})
	return r, err
}

func (s *stepped) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	return func(yield func(copystore.Object, error) bool) {
		var found []copystore.Object
		err := s.step("list", func() error {
			for o, err := range s.Store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				found = append(found, o)
			}
			return nil
		})
		for _, o := range found {
			if !yield(o, nil) {
				return
			}
		}
		if err != nil {
			yield(copystore.Object{}, err)
		}
	}
}

func (s *stepped) Delete(ctx context.Context, name string) error {
	return s.step("delete "+base(name), func() error { return s.Store.Delete(ctx, name) })
}

// A handing store takes files over, as far as its caller can tell. What it does is seen
// by what it wraps.
type handing struct {
	copystore.Store
	unsupported bool
}

func (h handing) CreateFromFile(ctx context.Context, name, path string) error {
	if h.unsupported {
		return errors.ErrUnsupported
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return h.Create(ctx, name, f, info.Size())
}

// takings are the ways in which a store takes an image.
func takings() map[string]func(copystore.Store) copystore.Store {
	return map[string]func(copystore.Store) copystore.Store{
		"read":                   func(s copystore.Store) copystore.Store { return s },
		"taken over":             func(s copystore.Store) copystore.Store { return handing{s, false} },
		"read after a take-over": func(s copystore.Store) copystore.Store { return handing{s, true} },
	}
}

// base is an object's name below its tenant's prefix.
func base(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return parts[len(parts)-1]
}

// steps wraps a store for world.acquire.
func steps(hook func(n int, call string, over bool) error) func(copystore.Store) copystore.Store {
	return func(s copystore.Store) copystore.Store { return &stepped{Store: s, hook: hook} }
}

// crashAt makes call n and everything after it fail, as for a process that died;
// call n is applied if applied says so.
func crashAt(n int, applied bool, crashed *bool) func(copystore.Store) copystore.Store {
	return steps(func(at int, _ string, over bool) error {
		if at > n || at == n && over == applied {
			*crashed = true
			return errFault
		}
		return nil
	})
}

// failAt makes call n alone fail.
func failAt(n int, applied bool, failed *bool) func(copystore.Store) copystore.Store {
	return steps(func(at int, _ string, over bool) error {
		if at == n && over == applied {
			*failed = true
			return errFault
		}
		return nil
	})
}
