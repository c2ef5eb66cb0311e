package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"gocloud.dev/blob"

	"github.com/leaseholddb/leasehold/copystore"
)

// An exactReader yields exactly the bytes that were announced, or fails. It tries
// to read one byte more before it ends.
type exactReader struct {
	ctx    context.Context
	r      io.Reader
	left   int64
	failed error // why it did not yield them; what else fails is a consequence
}

func (e *exactReader) Read(b []byte) (int, error) {
	if e.failed != nil {
		return 0, e.failed
	}
	if err := e.ctx.Err(); err != nil {
		e.failed = err
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := e.r.Read(b[:min(int64(len(b)), e.left+1)])
	e.left -= int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		e.failed = err
	case e.left < 0:
		e.failed = errors.New("the reader yields more bytes than were announced")
	case err != nil && e.left > 0:
		e.failed = fmt.Errorf("the reader yields %d bytes fewer than were announced", e.left)
	default:
		return n, err
	}
	return 0, e.failed
}

// An objectReader is an opened object and its turn.
type objectReader struct {
	ctx   context.Context
	name  string
	r     *blob.Reader
	turns turns
	once  sync.Once
}

func (o *objectReader) Read(b []byte) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, fmt.Errorf("read %s: %w", o.name, err)
	}
	n, err := o.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = explain(o.ctx, "read", o.name, err)
	}
	return n, err
}

func (o *objectReader) Close() error {
	err := o.r.Close()
	o.once.Do(o.turns.give)
	return err
}

// turns bounds how many calls go on at once.
type turns chan struct{}

// take waits for a turn until ctx ends.
func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	report := time.NewTicker(waitReport)
	defer report.Stop()
	for {
		select {
		case t <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-report.C:
			copystore.Progress(ctx)
		}
	}
}

func (t turns) give() { <-t }
