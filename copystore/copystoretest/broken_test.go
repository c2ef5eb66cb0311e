package copystoretest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/copystoretest"
	"github.com/leaseholddb/leasehold/copystore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A broken store is a good one with some operations replaced.
type broken struct {
	*memstore.Store
	create func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error
	open   func(ctx context.Context, good *memstore.Store, name string) (io.ReadCloser, error)
	list   func(ctx context.Context, good *memstore.Store, prefix string) iter.Seq2[copystore.Object, error]
	remove func(ctx context.Context, good *memstore.Store, name string) error
}

func (b broken) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if b.create == nil {
		return b.Store.Create(ctx, name, r, size)
	}
	return b.create(ctx, b.Store, name, r, size)
}

func (b broken) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if b.open == nil {
		return b.Store.Open(ctx, name)
	}
	return b.open(ctx, b.Store, name)
}

func (b broken) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	if b.list == nil {
		return b.Store.List(ctx, prefix)
	}
	return b.list(ctx, b.Store, prefix)
}

func (b broken) Delete(ctx context.Context, name string) error {
	if b.remove == nil {
		return b.Store.Delete(ctx, name)
	}
	return b.remove(ctx, b.Store, name)
}

type seq = iter.Seq2[copystore.Object, error]

// only yields the objects that keep selects, as edit leaves them.
func only(objects seq, keep func(i int, o *copystore.Object) bool) seq {
	return func(yield func(copystore.Object, error) bool) {
		i := 0
		for o, err := range objects {
			if (err != nil || keep(i, &o)) && !yield(o, err) {
				return
			}
			i++
		}
	}
}

// whole makes an object of whatever r yields.
func whole(ctx context.Context, good *memstore.Store, name string, r io.Reader) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return good.Create(ctx, name, bytes.NewReader(body), int64(len(body)))
}

func exists(good *memstore.Store, name string) bool {
	r, err := good.Open(context.Background(), name)
	if err == nil {
		r.Close()
	}
	return err == nil
}

func isSub(name, dir string) bool { return strings.Contains(name, "/"+dir+"/") }

// detached hides the end of a context, as a store does that ignores it once it
// has begun.
func detached(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// Each of these stores breaks one promise and fails that check alone.
func TestEachCheckCanFail(t *testing.T) {
	cases := map[string]broken{
		"names": {remove: func(ctx context.Context, good *memstore.Store, name string) error {
			if copystore.ValidateName(name) != nil {
				return nil
			}
			return good.Delete(ctx, name)
		}},
		"prefixes": {list: func(ctx context.Context, good *memstore.Store, prefix string) seq {
			if copystore.ValidatePrefix(prefix) != nil {
				return func(func(copystore.Object, error) bool) {}
			}
			return good.List(ctx, prefix)
		}},
		"round trip": {create: func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
			if size == 0 && strings.HasSuffix(name, "/empty") {
				return errors.New("an empty object is refused")
			}
			return good.Create(ctx, name, r, size)
		}},
		"create only": {create: func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
			err := good.Create(ctx, name, r, size)
			if errors.Is(err, copystore.ErrExists) && size == 0 {
				return nil
			}
			return err
		}},
		"open absent": {open: func(ctx context.Context, good *memstore.Store, name string) (io.ReadCloser, error) {
			r, err := good.Open(ctx, name)
			if errors.Is(err, copystore.ErrNotExist) && strings.HasSuffix(name, "/dir") {
				return nil, errors.New("is a directory")
			}
			return r, err
		}},
		"list after write": {list: func(ctx context.Context, good *memstore.Store, prefix string) seq {
			return only(good.List(ctx, prefix), func(_ int, o *copystore.Object) bool {
				o.Size = min(o.Size, 65_535)
				return true
			})
		}},
		"prefix boundary": {list: func(ctx context.Context, good *memstore.Store, prefix string) seq {
			if !strings.HasSuffix(prefix, "/t-1/") {
				return good.List(ctx, prefix)
			}
			parent := strings.TrimSuffix(prefix, "t-1/")
			return only(good.List(ctx, parent), func(_ int, o *copystore.Object) bool {
				return strings.HasPrefix(o.Name, strings.TrimSuffix(prefix, "/"))
			})
		}},
		"long listing": {list: func(ctx context.Context, good *memstore.Store, prefix string) seq {
			return only(good.List(ctx, prefix), func(i int, _ *copystore.Object) bool { return i < 50 })
		}},
		"stopped listing": {list: func(ctx context.Context, good *memstore.Store, prefix string) seq {
			return func(yield func(copystore.Object, error) bool) {
				for o, err := range good.List(ctx, prefix) {
					yield(o, err)
				}
			}
		}},
		"delete absent": {remove: func(ctx context.Context, good *memstore.Store, name string) error {
			if copystore.ValidateName(name) == nil && !exists(good, name) {
				return copystore.ErrNotExist
			}
			return good.Delete(ctx, name)
		}},
		"delete one": {remove: func(ctx context.Context, good *memstore.Store, name string) error {
			if strings.HasSuffix(name, "/a/x") {
				good.Delete(ctx, name+"y")
			}
			return good.Delete(ctx, name)
		}},
		"failing reader": {create: func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
			failure := &failureReader{r: r}
			err := good.Create(ctx, name, failure, size)
			if failure.err != nil && ctx.Err() == nil {
				partial := io.LimitReader(failure.copy(), size)
				return errors.Join(err, whole(ctx, good, name, partial))
			}
			return err
		}},
		"wrong size": {create: func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
			if size != 10 || ctx.Err() != nil {
				return good.Create(ctx, name, r, size)
			}
			return whole(ctx, good, name, io.LimitReader(r, size+1))
		}},
		"unfinished": {create: unfinished},
		"cancelled": {remove: func(ctx context.Context, good *memstore.Store, name string) error {
			return good.Delete(detached(ctx), name)
		}},
		"cancelled transfer": {create: func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if size > 1<<30 {
				return errors.New("too large to be cancelled")
			}
			return good.Create(detached(ctx), name, r, size)
		}},
		"cancelled read": {open: func(ctx context.Context, good *memstore.Store, name string) (io.ReadCloser, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return good.Open(detached(ctx), name)
		}},
		"big object": {create: func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
			if size == big && !isSub(name, "c16") {
				return good.Create(ctx, name, io.MultiReader(bytes.NewReader([]byte{1}), r), size+1)
			}
			return good.Create(ctx, name, r, size)
		}},
		"race to create":    {create: checkThenCreate()},
		"race with deletes": {create: createAndLinger, remove: removeWithNeighbours},
	}
	for _, c := range copystoretest.Checks() {
		t.Run(c.Name, func(t *testing.T) {
			store, ok := cases[c.Name]
			if !ok {
				t.Fatal("no broken store")
			}
			store.Store = memstore.New()
			var failed []string
			for _, f := range copystoretest.Run(t.Context(), copystoretest.Subject{Store: store, BigSize: big}) {
				failed = append(failed, f.Check)
				t.Log(f)
			}
			if !slices.Equal(failed, []string{c.Name}) {
				t.Errorf("failed %q, want this check alone", failed)
			}
		})
	}
}

const big = 400_001

// failureReader remembers what was read before an error.
type failureReader struct {
	r    io.Reader
	read bytes.Buffer
	err  error
}

func (f *failureReader) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	f.read.Write(b[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func (f *failureReader) copy() io.Reader { return bytes.NewReader(f.read.Bytes()) }

// unfinished shows what it has of an object when it has the first half.
func unfinished(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
	if ctx.Err() != nil || size != 300_000 || exists(good, name) {
		return good.Create(ctx, name, r, size)
	}
	half := make([]byte, size/2)
	if _, err := io.ReadFull(r, half); err != nil {
		return err
	}
	if err := good.Create(ctx, name, bytes.NewReader(half), size/2); err != nil {
		return err
	}
	rest, err := io.ReadAll(r)
	good.Delete(ctx, name)
	if err != nil {
		return err
	}
	return good.Create(ctx, name, bytes.NewReader(append(half, rest...)), size)
}

// checkThenCreate looks whether the name is free and overwrites later, which
// several racers can do before one of them has written.
func checkThenCreate() func(context.Context, *memstore.Store, string, io.Reader, int64) error {
	var mu sync.Mutex
	return func(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
		if ctx.Err() != nil || copystore.ValidateName(name) != nil || size < 5000 || size > 1<<20 || exists(good, name) {
			return good.Create(ctx, name, r, size)
		}
		body, err := io.ReadAll(r)
		if err != nil || int64(len(body)) != size {
			return errors.Join(err, errors.New("wrong size"))
		}
		time.Sleep(time.Millisecond) // the gap that the check is there to find
		mu.Lock()
		defer mu.Unlock()
		good.Delete(ctx, name)
		return good.Create(ctx, name, bytes.NewReader(body), size)
	}
}

// createAndLinger leaves others time to do harm before the creator looks.
func createAndLinger(ctx context.Context, good *memstore.Store, name string, r io.Reader, size int64) error {
	err := good.Create(ctx, name, r, size)
	if strings.Contains(name, "sub/") {
		time.Sleep(time.Duration(size) * 100 * time.Microsecond)
	}
	return err
}

// removeWithNeighbours empties a directory along with the object, which only
// somebody who creates there at the same time notices.
func removeWithNeighbours(ctx context.Context, good *memstore.Store, name string) error {
	if dir, _, found := strings.Cut(name, "sub/"); found && ctx.Err() == nil {
		for o := range good.List(ctx, dir+"sub/") {
			good.Delete(ctx, o.Name)
		}
	}
	return good.Delete(ctx, name)
}

func TestPanicAndHangAreFailures(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, open := range map[string]func(context.Context, *memstore.Store, string) (io.ReadCloser, error){
		"panic": func(context.Context, *memstore.Store, string) (io.ReadCloser, error) { panic("boom") },
		"hang": func(context.Context, *memstore.Store, string) (io.ReadCloser, error) {
			<-release
			return nil, errors.New("released")
		},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := 10 * time.Second
			if name == "hang" {
				timeout = 20 * time.Millisecond
			}
			store := broken{Store: memstore.New(), open: open}
			if failures := copystoretest.Run(t.Context(), copystoretest.Subject{Store: store, CheckTimeout: timeout}); len(failures) == 0 {
				t.Error("no failure")
			}
		})
	}
}
