package copystore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// This file is the only one that calls the Store, and the only one that
// translates its errors.

// An untrustedError says why an object of a copy must not be believed. It makes a
// restore try the next older copy.
type untrustedError struct{ reason string }

func (e *untrustedError) Error() string { return e.reason }

func untrusted(format string, args ...any) error {
	return &untrustedError{reason: fmt.Sprintf(format, args...)}
}

// asUntrusted returns the reason if err says that a copy must not be believed.
func asUntrusted(err error) (string, bool) {
	var u *untrustedError
	if errors.As(err, &u) {
		return u.reason, true
	}
	return "", false
}

// A localError is a failure of this host's files in the middle of a transfer,
// which the store must not be blamed for.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// call runs one store call within limit and translates its error. The sentinels,
// untrusted objects and failures of local files pass through as they are.
func (c *Copies) call(ctx context.Context, key coord.Key, op string, limit time.Duration, f func(ctx context.Context, progress func()) error) error {
	err := bounded(ctx, c.clock, limit, func(ctx context.Context, progress func()) error {
		ctx, progress, returned := c.follow(ctx, progress)
		defer returned()
		return f(ctx, progress)
	})
	if err == nil || errors.Is(err, ErrExists) || errors.Is(err, ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if _, bad := asUntrusted(err); bad {
		return err
	}
	var local *localError
	if errors.As(err, &local) {
		return fmt.Errorf("%s: %w", op, local.err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return &coord.Error{Code: coord.CodeCopyStoreUnavailable, Op: op, Key: key, Err: err}
}

// list takes apart what the store has under prefix, which is the tenant's or one
// of its epochs'.
func (c *Copies) list(ctx context.Context, key coord.Key, prefix string) (*listing, error) {
	l := newListing()
	err := c.call(ctx, key, "list", c.callTimeout, func(ctx context.Context, progress func()) error {
		for o, err := range c.store.List(ctx, prefix) {
			if err != nil {
				return err
			}
			if parsed, ok := parseObject(key, o.Name); ok {
				l.add(parsed)
			}
			l.rolledBack = l.rolledBack || o.Name == rollbackName(key)
			progress()
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	l.sort()
	return l, nil
}

// remove deletes one object.
func (c *Copies) remove(ctx context.Context, key coord.Key, name string) error {
	return c.call(ctx, key, "delete "+name, c.callTimeout, func(ctx context.Context, _ func()) error {
		return c.store.Delete(ctx, name)
	})
}

// readDocument returns a manifest or an origin, or [ErrNotExist].
func (c *Copies) readDocument(ctx context.Context, key coord.Key, name string) ([]byte, error) {
	var b []byte
	err := c.call(ctx, key, "read "+name, c.callTimeout, func(ctx context.Context, _ func()) error {
		r, err := c.store.Open(ctx, name)
		if err != nil {
			return err
		}
		defer r.Close()
		// One byte more than a document may have is enough to refuse it.
		b, err = io.ReadAll(io.LimitReader(r, maxDocument+1))
		return err
	})
	return b, err
}

// createDocument writes a manifest or an origin, or fails with [ErrExists].
func (c *Copies) createDocument(ctx context.Context, key coord.Key, name string, body []byte) error {
	return c.call(ctx, key, "write "+name, c.callTimeout, func(ctx context.Context, _ func()) error {
		return c.store.Create(ctx, name, bytes.NewReader(body), int64(len(body)))
	})
}

// A digest is what a transfer of an image measured on its way.
type digest struct {
	size   int64
	sha256 string
}

// digestOf measures what is left of r.
func digestOf(r io.Reader) (digest, error) {
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, r, make([]byte, bufferSize))
	return digest{size: n, sha256: hex.EncodeToString(sum.Sum(nil))}, err
}

// download writes the object to dst and measures it. It reads no more than one
// byte beyond limit.
func (c *Copies) download(ctx context.Context, key coord.Key, name string, dst io.Writer, limit int64) (digest, error) {
	var d digest
	err := c.call(ctx, key, "read "+name, c.stallTimeout, func(ctx context.Context, progress func()) error {
		r, err := c.store.Open(ctx, name)
		if err != nil {
			return err
		}
		defer r.Close()
		sum := sha256.New()
		out := io.MultiWriter(sum, localWriter{dst})
		d.size, err = io.CopyBuffer(out, progressReader{io.LimitReader(r, limit+1), progress}, make([]byte, min(bufferSize, limit+1)))
		d.sha256 = hex.EncodeToString(sum.Sum(nil))
		return err
	})
	return d, err
}

// handOver creates the object from the file at path, which src reads, where the
// store can take files over.
func (c *Copies) handOver(ctx context.Context, key coord.Key, name, path string, src io.Reader) (digest, error) {
	files, ok := c.store.(FileStore)
	if !ok {
		return digest{}, errors.ErrUnsupported
	}
	var d digest
	err := c.call(ctx, key, "write "+name, c.stallTimeout, func(ctx context.Context, progress func()) (err error) {
		if d, err = digestOf(&contextReader{ctx, progressReader{localReader{src}, progress}}); err != nil {
			return err
		}
		return files.CreateFromFile(ctx, name, path)
	})
	return d, err
}

// upload creates the object from the size bytes of src and measures what the
// store read.
func (c *Copies) upload(ctx context.Context, key coord.Key, name string, src io.Reader, size int64) (digest, error) {
	var d digest
	err := c.call(ctx, key, "write "+name, c.stallTimeout, func(ctx context.Context, progress func()) error {
		sum := sha256.New()
		count := &countingWriter{}
		r := io.TeeReader(progressReader{localReader{src}, progress}, io.MultiWriter(sum, count))
		err := c.store.Create(ctx, name, r, size)
		d = digest{size: count.n, sha256: hex.EncodeToString(sum.Sum(nil))}
		if err == nil && d.size != size {
			return fmt.Errorf("the store took %d bytes of %d and called it done", d.size, size)
		}
		return err
	})
	return d, err
}

// bufferSize is the most that a download holds in memory, in bytes.
const bufferSize = 256 << 10

type progressReader struct {
	r        io.Reader
	progress func()
}

func (p progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.progress()
	}
	return n, err
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

type localWriter struct{ w io.Writer }

func (l localWriter) Write(b []byte) (int, error) {
	n, err := l.w.Write(b)
	if err != nil {
		err = &localError{err}
	}
	return n, err
}

type localReader struct{ r io.Reader }

func (l localReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &localError{err}
	}
	return n, err
}

type countingWriter struct{ n int64 }

func (c *countingWriter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}
