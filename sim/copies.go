package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

const copies = "copies"

// A copyServer holds the objects. All of it runs on the scheduler's goroutine.
type copyServer struct {
	w       *world
	objects map[string][]byte
	made    map[string]bool // names that were ever created
}

func newCopyServer(w *world) *copyServer {
	return &copyServer{w: w, objects: make(map[string][]byte), made: make(map[string]bool)}
}

func (s *copyServer) create(name string, body []byte) error {
	if _, taken := s.objects[name]; taken && !safeguards.Off(safeguards.CreateOnly) {
		return copystore.ErrExists
	}
	s.w.truth.created(s, name, body)
	s.objects[name] = body
	s.made[name] = true
	return nil
}

// names returns those with the prefix, in order.
func (s *copyServer) names(prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(n string) bool { return !strings.HasPrefix(n, prefix) })
}

// newest returns the newest epoch of key that anything is of.
func (s *copyServer) newest(key coord.Key) coord.Epoch {
	var newest coord.Epoch
	for _, name := range s.names(key.String() + "/") {
		newest = max(newest, epochOf(name))
	}
	return newest
}

// epochOf returns the epoch in an object's name, 0 if it has none.
func epochOf(name string) coord.Epoch {
	e, err := coord.ParseEpoch(path.Base(path.Dir(name)))
	if err != nil {
		return 0
	}
	return e
}

// A copyClient is a process' way to the copy store.
type copyClient struct{ p *process }

var _ copystore.Store = (*copyClient)(nil)

func (c *copyClient) call(ctx context.Context, site, name string, apply func()) error {
	return c.p.world.call(ctx, c.p, copies, site, name, apply)
}

// site tells the kinds of objects apart, so that a fault can wait for one of them.
func site(verb, name string) string {
	switch {
	case strings.HasSuffix(name, "/origin.json"):
		return verb + "-origin"
	case strings.HasSuffix(name, ".json"):
		return verb + "-manifest"
	case strings.HasSuffix(name, ".db"):
		return verb + "-image"
	}
	return verb
}

// Create implements [copystore.Store].
func (c *copyClient) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return err
	}
	if int64(len(body)) != size {
		return fmt.Errorf("create %s: the reader does not yield the bytes that were announced", name)
	}
	var refused error
	if err := c.call(ctx, site("create", name), name, func() { refused = c.p.world.copies.create(name, body) }); err != nil {
		return err
	}
	return refused
}

// Open implements [copystore.Store].
func (c *copyClient) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := copystore.ValidateName(name); err != nil {
		return nil, err
	}
	var body []byte
	var found bool
	if err := c.call(ctx, site("open", name), name, func() { body, found = c.p.world.copies.objects[name] }); err != nil {
		return nil, err
	}
	if !found {
		return nil, copystore.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// List implements [copystore.Store].
func (c *copyClient) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	return func(yield func(copystore.Object, error) bool) {
		if err := copystore.ValidatePrefix(prefix); err != nil {
			yield(copystore.Object{}, err)
			return
		}
		var found []copystore.Object
		err := c.call(ctx, "list", prefix, func() {
			server := c.p.world.copies
			if key, err := coord.ParseKey(strings.TrimSuffix(prefix, "/")); err == nil {
				c.p.world.truth.lists(c.p, key)
			}
			for _, name := range server.names(prefix) {
				found = append(found, copystore.Object{Name: name, Size: int64(len(server.objects[name]))})
			}
		})
		if err != nil {
			yield(copystore.Object{}, err)
			return
		}
		for _, o := range found {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// Delete implements [copystore.Store].
func (c *copyClient) Delete(ctx context.Context, name string) error {
	if err := copystore.ValidateName(name); err != nil {
		return err
	}
	return c.call(ctx, site("delete", name), name, func() { delete(c.p.world.copies.objects, name) })
}
