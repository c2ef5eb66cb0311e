package router_test

import (
	"context"
	"io"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

// A slowLine is a copy store at the end of a line of one MiB per second.
type slowLine struct{ copystore.Store }

func (s slowLine) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	return s.Store.Create(ctx, name, slowReader{r}, size)
}

func (s slowLine) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.Store.Open(ctx, name)
	return struct {
		io.Reader
		io.Closer
	}{slowReader{r}, r}, err
}

type slowReader struct{ r io.Reader }

func (s slowReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	time.Sleep(time.Duration(n) * time.Second >> 20)
	return n, err
}

// Long transfers say how far they have come, and short ones say nothing.
func TestTransfersAreFollowed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zapcore.DebugLevel)
		n := w.router("a", func(o *router.Options) {
			o.Copies, o.Logger, o.MaxValue = slowLine{w.copies}, zap.New(core), 64<<20
		})
		noted := func(want int, message string) {
			t.Helper()
			got := logs.TakeAll()
			for _, e := range got {
				if fields := e.ContextMap(); e.Message != message || fields["bytes"].(int64) > fields["of"].(int64) || fields["of"].(int64) < 41<<20 {
					t.Errorf("logged %q with %v", e.Message, fields)
				}
			}
			if len(got) != want {
				t.Errorf("%d times %q, want %d", len(got), message, want)
			}
		}
		h := n.open(key(t, 1))
		mustAdd(t, h, "one")
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		noted(0, "upload of a large copy goes on")
		if _, err := h.DB().Exec("CREATE TABLE big(b); INSERT INTO big VALUES (zeroblob(41<<20))"); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Forty-one seconds, told in steps of eight MiB, at least ten seconds apart.
		noted(2, "upload of a large copy goes on")
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.open(key(t, 1))
		noted(2, "download of a large copy goes on")
	})
}
