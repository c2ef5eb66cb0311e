package copystoretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/leaseholddb/leasehold/copystore"
)

// A subject is a store within the prefix of one check.
type subject struct {
	Subject
	prefix string
}

func (s subject) create(ctx context.Context, name, body string) error {
	return s.Store.Create(ctx, s.prefix+name, strings.NewReader(body), int64(len(body)))
}

// put creates objects that a check needs, each with its own name as content.
func (s subject) put(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := s.create(ctx, name, name); err != nil {
			return fmt.Errorf("could not create %q: %w", name, err)
		}
	}
	return nil
}

func (s subject) read(ctx context.Context, name string) (string, error) {
	r, err := s.Store.Open(ctx, s.prefix+name)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r)
	return string(body), errors.Join(err, r.Close())
}

func (s subject) remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := s.Store.Delete(ctx, s.prefix+name); err != nil {
			return fmt.Errorf("could not delete %q: %w", name, err)
		}
	}
	return nil
}

// list returns what is below dir, relative to the check's prefix and sorted.
func (s subject) list(ctx context.Context, dir string) ([]copystore.Object, error) {
	var found []copystore.Object
	for o, err := range s.Store.List(ctx, s.prefix+dir) {
		if err != nil {
			return nil, fmt.Errorf("could not list %q: %w", dir, err)
		}
		o.Name = strings.TrimPrefix(o.Name, s.prefix)
		found = append(found, o)
	}
	slices.SortFunc(found, func(a, b copystore.Object) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// expect checks that exactly these objects are below dir.
func (s subject) expect(ctx context.Context, dir string, want ...string) error {
	found, err := s.list(ctx, dir)
	if err != nil {
		return err
	}
	var got []string
	for _, o := range found {
		got = append(got, o.Name)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("listing %q gives %q, want %q", dir, got, want)
	}
	return nil
}

// expectAbsent checks that name can be neither opened nor listed.
func (s subject) expectAbsent(ctx context.Context, name string) error {
	if _, err := s.read(ctx, name); !errors.Is(err, copystore.ErrNotExist) {
		return fmt.Errorf("opening %q gives %v, want ErrNotExist", name, err)
	}
	return s.expect(ctx, "")
}

// pattern yields size bytes that repeat only after a long while.
type pattern struct {
	size, at int64
}

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), p.size-p.at))
	for i := range n {
		x := uint64(p.at+int64(i)) * 0x9e3779b97f4a7c15
		b[i] = byte(x >> 56)
	}
	p.at += int64(n)
	return n, nil
}

// A hookReader runs hook once, when after bytes of r have been read.
type hookReader struct {
	r     io.Reader
	after int
	hook  func() error
}

func (h *hookReader) Read(b []byte) (int, error) {
	if h.after == 0 && h.hook != nil {
		hook := h.hook
		h.hook = nil
		if err := hook(); err != nil {
			return 0, err
		}
	}
	if h.hook != nil {
		b = b[:min(len(b), h.after)]
	}
	n, err := h.r.Read(b)
	h.after = max(0, h.after-n)
	return n, err
}
