package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/router"
)

// A countingStore counts the calls.
type countingStore struct {
	copystore.Store
	calls atomic.Int64
}

func (s *countingStore) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	s.calls.Add(1)
	return s.Store.Create(ctx, name, r, size)
}

func (s *countingStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	s.calls.Add(1)
	return s.Store.Open(ctx, name)
}

func (s *countingStore) List(ctx context.Context, prefix string) iter.Seq2[copystore.Object, error] {
	s.calls.Add(1)
	return s.Store.List(ctx, prefix)
}

func (s *countingStore) Delete(ctx context.Context, name string) error {
	s.calls.Add(1)
	return s.Store.Delete(ctx, name)
}

// withRouter runs f with a router whose copies go to a directory of their own.
func (c *copyBench) withRouter(every time.Duration, f func(r *router.Router, store *countingStore) error) (err error) {
	dir, err := os.MkdirTemp(c.dir, "router-")
	if err != nil {
		return err
	}
	copies, err := dirstore.New(filepath.Join(dir, "copies"), dirstore.Options{})
	if err != nil {
		return err
	}
	store := &countingStore{Store: copies}
	r, err := router.New(router.Options{
		ReplicaID: "bench", StateRoot: dir, Leases: memlease.New(coord.SystemClock()), Copies: store, SnapshotEvery: every,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(context.Background()), copies.Close()) }()
	return f(r, store)
}

// unchanged counts what a hundred periods cost a tenant that nobody writes to.
func (c *copyBench) unchanged(b *bench) error {
	const every = 10 * time.Millisecond
	return c.withRouter(every, func(r *router.Router, store *countingStore) error {
		h, err := r.Open(c.ctx, c.key)
		if err != nil {
			return err
		}
		if _, err := h.Snapshot(c.ctx); err != nil {
			return err
		}
		time.Sleep(10 * every) // what the opening began has ended
		before := store.calls.Load()
		time.Sleep(100 * every)
		b.add(row{
			Name: "copies: publish of an unchanged ledger", Value: float64(store.calls.Load() - before), Limit: 0, Better: lower, Unit: "calls",
			Ours: "100 periods", Reference: "store calls",
		})
		return nil
	})
}

func (c *copyBench) openSmall(b *bench) error {
	return c.withRouter(0, func(r *router.Router, _ *countingStore) error {
		h, err := r.Open(c.ctx, c.key)
		if err != nil {
			return err
		}
		if err := growLedger(c.ctx, h.DB(), 1<<20); err != nil {
			return err
		}
		var took []time.Duration
		for range 41 {
			if _, err := h.Snapshot(c.ctx); err != nil {
				return err
			}
			if err := h.Handoff(c.ctx); err != nil {
				return err
			}
			start := time.Now()
			if h, err = r.Open(c.ctx, c.key); err != nil {
				return err
			}
			took = append(took, time.Since(start))
		}
		p50 := median(took)
		b.add(row{
			Name: "copies: open of a tenant with 1 MB, p50", Value: float64(p50.Microseconds()) / 1000, Limit: 15, Better: lower, Unit: "ms",
			Ours: "acquire, restore, claim, open", Reference: "memory leases, a directory",
		})
		return nil
	})
}

// commitLatencies writes 500 commits a second until stop says so, and returns how
// long each took.
func (c *copyBench) commitLatencies(stop func() bool) ([]time.Duration, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var took []time.Duration
	for !stop() {
		<-tick.C
		start := time.Now()
		if _, err := c.db.DB().ExecContext(c.ctx, "INSERT INTO pad(b) VALUES (randomblob(100))"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

func (c *copyBench) writesBesideCopy(b *bench) error {
	with := side{"beside a copy", func() (time.Duration, error) {
		done := make(chan error, 1)
		var over atomic.Bool
		go func() {
			_, err := c.publish()
			over.Store(true)
			done <- err
		}()
		took, err := c.commitLatencies(over.Load)
		return p99(took), errors.Join(err, <-done)
	}}
	without := side{"without a copy", func() (time.Duration, error) {
		until := time.Now().Add(2 * time.Second)
		took, err := c.commitLatencies(func() bool { return time.Now().After(until) })
		return p99(took), err
	}}
	return b.ratio("copies: write p99 while 200 MB are copied, 500 commits/s", 2, with, without)
}

// memory compares what the process holds at most, C's share included, with what
// it holds before.
func (c *copyBench) memory(b *bench) error {
	for _, what := range []side{{"publish", c.publish}, {"restore", c.restore}} {
		// A first run brings in what stays: connections, caches of the allocator.
		if _, err := what.run(); err != nil {
			return err
		}
		idle, err := resetPeak()
		if err != nil {
			return err
		}
		if _, err := what.run(); err != nil {
			return err
		}
		peak, err := memoryField("VmHWM:")
		if err != nil {
			return err
		}
		b.add(row{
			Name: "copies: memory above idle, " + what.what + " 200 MB", Value: float64(peak-idle) / 1024, Limit: 16, Better: lower, Unit: "MiB",
			Ours: fmt.Sprintf("peak %d MiB", peak>>10), Reference: fmt.Sprintf("idle %d MiB", idle>>10),
		})
	}
	return nil
}

// resetPeak makes the kernel count the peak from here on, and returns what is
// resident now, in KiB.
func resetPeak() (int64, error) {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return 0, err
	}
	return memoryField("VmRSS:")
}

func memoryField(name string) (kib int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(status), name)
	if !ok {
		return 0, fmt.Errorf("no %s in /proc/self/status", name)
	}
	_, err = fmt.Sscan(rest, &kib)
	return kib, err
}
