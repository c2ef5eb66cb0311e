package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

const (
	scaleTenants = 10_000
	scaleActive  = 200 // of them, each appending once a second
	scaleOpens   = 1_000
	scaleLanes   = 16
	scaleCopies  = 30 * time.Second
	scaleWindow  = 30 * time.Second
)

// A scaleBed is an etcd in a process of its own, a directory of copies, and a lease
// store for the routers of this process.
type scaleBed struct {
	ctx    context.Context
	dir    string
	etcd   *child
	leases *etcdlease.Store
	copies *dirstore.Store
}

func benchScale(ctx context.Context, b *bench) (err error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return err
	}
	s := &scaleBed{ctx: ctx, dir: dir}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if s.etcd, err = startChild("etcd", filepath.Join(dir, "etcd")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.etcd.stop()) }()
	if s.copies, err = dirstore.New(filepath.Join(dir, "copies"), dirstore.Options{}); err != nil {
		return err
	}
	defer s.copies.Close()
	if s.leases, err = etcdlease.Open(ctx, etcdlease.Config{Endpoints: []string{s.etcd.address}}); err != nil {
		return err
	}
	defer s.leases.Close()
	for _, step := range []func(*bench) error{s.http, s.opening, s.idle} {
		if err := step(b); err != nil {
			return err
		}
	}
	return nil
}

// router makes one as a replica has it.
func (s *scaleBed) router(id string) (*router.Router, error) {
	return router.New(router.Options{
		ReplicaID: id, StateRoot: filepath.Join(s.dir, id), Leases: s.leases, Copies: s.copies,
		SnapshotEvery: scaleCopies, DrillEvery: 24 * time.Hour,
	})
}

func (s *scaleBed) key(organization string, n int) coord.Key {
	key, err := coord.NewKey(organization, fmt.Sprintf("t-%032x", n))
	if err != nil {
		panic(err) // the format is fixed
	}
	return key
}

// inLanes calls f for the numbers below n, scaleLanes at a time.
func inLanes(n int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, scaleLanes)
	var lanes sync.WaitGroup
	for lane := range scaleLanes {
		lanes.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[lane] == nil; i = int(next.Add(1)) - 1 {
				errs[lane] = f(i)
			}
		})
	}
	lanes.Wait()
	return errors.Join(errs...)
}

func appendNote(ctx context.Context, h *router.Handle) error {
	return h.Run(ctx, func(ctx context.Context, v *router.View) error {
		_, _, err := v.Ledger().Append(ctx, ledger.Event{Actor: "bench", Kind: "note", Payload: []byte(`{"n":1}`)})
		return err
	})
}

// opening makes tenants with a copy each, and opens them on another replica.
func (s *scaleBed) opening(b *bench) error {
	first, err := s.router("opens-first")
	if err != nil {
		return err
	}
	err = inLanes(b.of(scaleOpens), func(i int) error {
		h, err := first.Open(s.ctx, s.key("opens", i))
		if err != nil {
			return err
		}
		return errors.Join(appendNote(s.ctx, h), h.Handoff(s.ctx))
	})
	if err = errors.Join(err, first.Close(s.ctx)); err != nil {
		return err
	}
	second, err := s.router("opens-second")
	if err != nil {
		return err
	}
	began := time.Now()
	err = inLanes(b.of(scaleOpens), func(i int) error {
		_, err := second.Open(s.ctx, s.key("opens", i))
		return err
	})
	took := time.Since(began)
	b.add(row{
		Name: "scale: opening 1,000 tenants with copies, 16 at a time", Value: float64(b.of(scaleOpens)) / took.Seconds(), Limit: 300, Better: higher, Unit: "/s",
		Ours: "acquire, restore, claim, open", Reference: "etcd and copies that sync to the disk",
	})
	return errors.Join(err, second.Close(s.ctx))
}

// use is what the process takes at one moment.
type use struct {
	rss         int64 // KiB
	goroutines  int
	descriptors int
}

func useNow() (u use, err error) {
	debug.FreeOSMemory()
	if u.rss, err = memoryField("VmRSS:"); err != nil {
		return use{}, err
	}
	open, err := os.ReadDir("/proc/self/fd")
	return use{u.rss, runtime.NumGoroutine(), len(open)}, err
}

// idle holds many tenants, first all of them idle, then some of them active.
func (s *scaleBed) idle(b *bench) (err error) {
	r, err := s.router("idle")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(context.Background())) }()
	before, err := useNow()
	if err != nil {
		return err
	}
	err = inLanes(b.of(scaleTenants), func(i int) error { return s.openPatiently(r, s.key("idle", i)) })
	if err != nil {
		return err
	}
	handles := r.Handles()
	if err := s.awaitRest(handles); err != nil {
		return err
	}
	after, err := useNow()
	if err != nil {
		return err
	}
	for _, figure := range []struct {
		what, unit   string
		value, limit float64
	}{
		{"memory", "KiB", float64(after.rss - before.rss), 40},
		{"goroutines", "", float64(after.goroutines - before.goroutines), 3},
		{"descriptors", "", float64(after.descriptors - before.descriptors), 0},
	} {
		b.add(row{
			Name: "scale: " + figure.what + " of an idle tenant, of 10,000", Value: figure.value / float64(b.of(scaleTenants)), Limit: figure.limit, Better: lower, Unit: figure.unit,
			Ours: "the process with them", Reference: "without them",
		})
	}
	return s.active(b, handles)
}

// openPatiently opens a tenant and appends to it, again if need be, as a client does: this
// part is not measured.
func (s *scaleBed) openPatiently(r *router.Router, key coord.Key) (err error) {
	for range 5 {
		var h *router.Handle
		if h, err = r.Open(s.ctx, key); err == nil {
			err = appendNote(s.ctx, h)
		}
		if err == nil || s.ctx.Err() != nil {
			return err
		}
	}
	return err
}

// awaitRest returns when every tenant has been copied and is at rest.
func (s *scaleBed) awaitRest(handles []*router.Handle) error {
	for _, h := range handles {
		for {
			stats, err := h.Stats()
			if err != nil {
				return err
			}
			if stats.Connections == 0 {
				break
			}
			select {
			case <-s.ctx.Done():
				return s.ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	select { // until the first periodic copies are over: what follows measures the usual state
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(scaleCopies + 5*time.Second):
		return nil
	}
}

// active measures the processor while some tenants write and the others are held.
func (s *scaleBed) active(b *bench, handles []*router.Handle) error {
	start, began := processorTime(), time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, scaleWindow)
	defer cancel()
	errs := make([]error, scaleActive)
	var writers sync.WaitGroup
	for i := range scaleActive {
		writers.Go(func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					errs[i] = errors.Join(errs[i], appendNote(s.ctx, handles[i]))
				}
			}
		})
	}
	writers.Wait()
	share := float64(processorTime()-start) / float64(time.Since(began))
	b.add(row{
		Name: "scale: processor with 10,000 tenants, 200 of them active", Value: 100 * share, Limit: 15, Better: lower, Unit: "%",
		Ours: "an append a second each, TTL 10 s", Reference: "one core",
	})
	return errors.Join(errs...)
}

// processorTime returns what this process has used, in user and system mode.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
