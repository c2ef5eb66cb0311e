package copystore_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// A slow store waits before each call and before each byte, or for ever, on the
// objects that it is told to.
type slow struct {
	copystore.Store
	call    func(call string) time.Duration // before an operation
	perByte time.Duration
	reset   bool // does not say that a context ended
}

const forever = 1000 * time.Hour

func (s slow) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
	}
	if s.reset {
		return errors.New("connection reset")
	}
	return ctx.Err()
}

type slowReader struct {
	io.Reader
	ctx  context.Context
	slow slow
}

func (s slowReader) Read(b []byte) (int, error) {
	if err := s.slow.wait(s.ctx, s.slow.perByte); err != nil {
		return 0, err
	}
	return s.Reader.Read(b[:1])
}

func (s slow) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := s.wait(ctx, s.call("create "+base(name))); err != nil {
		return err
	}
	if strings.HasSuffix(name, ".db") {
		r = slowReader{r, ctx, s}
	}
	return s.Store.Create(ctx, name, r, size)
}

func (s slow) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.wait(ctx, s.call("open "+base(name))); err != nil {
		return nil, err
	}
	r, err := s.Store.Open(ctx, name)
	if err == nil && strings.HasSuffix(name, ".db") {
		r = struct {
			io.Reader
			io.Closer
		}{slowReader{r, ctx, s}, r}
	}
	return r, err
}

func (s slow) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	return func(yield func(copystore.Object, error) bool) {
		if err := s.wait(ctx, s.call("list")); err != nil {
			yield(copystore.Object{}, err)
			return
		}
		s.Store.List(ctx, prefix)(yield)
	}
}

func (s slow) Delete(ctx context.Context, name string) error {
	if err := s.wait(ctx, s.call("delete "+base(name))); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name)
}

// life goes through every operation and returns the first error.
func (o *owner) life() error {
	if err := o.open(); err != nil {
		return err
	}
	o.write("b1")
	if err := o.publish(); err != nil {
		return err
	}
	if err := o.retain(1); err != nil {
		return err
	}
	_, err := o.forget()
	return err
}

// Trap 32: a call that hangs ends with a typed error within its bound, wherever
// it is. The error does not look like the end of the caller's own context.
func TestHangingCallIsBounded(t *testing.T) {
	for _, reset := range []bool{false, true} {
		testHangingCalls(t, reset)
	}
}

func testHangingCalls(t *testing.T, reset bool) {
	for _, hang := range []string{
		"list", "open e00000001/snap-000001.json", "open e00000001/snap-000001.db", "create e00000002/origin.json",
		"create e00000002/snap-000001.db", "create e00000002/snap-000001.json",
		"delete e00000001/snap-000001.json", "delete e00000001/origin.json", "delete e00000002/origin.json",
	} {
		t.Run(hang, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.tenure("a1")
				o := w.acquire(func(s copystore.Store) copystore.Store {
					return slow{s, func(call string) time.Duration {
						if call == hang {
							return forever
						}
						return 0
					}, 0, reset}
				})
				began := time.Now()
				err := o.life()
				if !errors.Is(err, coord.CodeCopyStoreUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took < copystore.DefaultCallTimeout || took > copystore.DefaultCallTimeout+time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A transfer may take as long as it likes while it moves, and no longer.
func TestTransferIsBoundedByProgress(t *testing.T) {
	cases := []struct {
		perByte time.Duration
		ok      bool
	}{
		{copystore.DefaultStallTimeout - time.Second, true},
		{2*copystore.DefaultStallTimeout + time.Second, false},
	}
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.tenure("a1")
			o := w.acquire(func(s copystore.Store) copystore.Store {
				return slow{s, func(string) time.Duration { return 0 }, c.perByte, false}
			})
			if err := o.life(); (err == nil) != c.ok || !c.ok && !errors.Is(err, coord.CodeCopyStoreUnavailable) {
				t.Errorf("at a byte in %v: %v", c.perByte, err)
			}
		})
	}
}

// The caller's own context is recognised through the code, even if the store
// does not mention it.
func TestCallersContextEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.tenure("a1")
		o := w.acquire(func(s copystore.Store) copystore.Store {
			return slow{s, func(string) time.Duration { return forever }, 0, true}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := map[string]func() error{
			"restore": func() error { _, err := o.copies.Restore(ctx, o.grant, o.request()); return err },
			"claim":   func() error { _, err := o.copies.Claim(ctx, o.grant, nil); return err },
			"forget":  func() error { _, err := o.copies.Forget(ctx, w.key, 1); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, coord.CodeCopyStoreUnavailable) {
				t.Errorf("%s gives %v", name, err)
			}
		}
		if _, err := os.Stat(o.path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a ledger was placed (%v)", err)
		}
	})
}
