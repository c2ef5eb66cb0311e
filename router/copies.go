package router

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// Whether a copy is made of a ledger that the newest copy already equals.
const (
	ifChanged = false
	always    = true
)

// uncovered is more than a database ever commits.
const uncovered = math.MaxUint64

// copies is a handle's dealings with the copy store.
type copies struct {
	h         *Handle
	publisher *copystore.Publisher // set by the claim
	covered   atomic.Uint64        // Commits of the database that the newest committed copy holds
	failing   atomic.Bool          // the latest publish failed, and that was logged
	proof     proof
	level     level

	ctx    context.Context // ends with stop
	cancel context.CancelFunc
	mu     struct {
		sync.Mutex
		stopped bool
		running sync.WaitGroup
	}
}

func newCopies(h *Handle) *copies {
	c := &copies{h: h}
	c.ctx, c.cancel = context.WithCancel(h.ctx)
	return c
}

func (c *copies) restore(ctx context.Context, path string) (copystore.Restored, error) {
	warm := c.h.router.takeWarm(c.h.key)
	defer c.h.router.discard(warm)
	return c.h.router.copies.Restore(ctx, c.h.lease.Grant(), copystore.RestoreRequest{
		Path: path,
		Verify: func(ctx context.Context, path string) (int64, error) {
			return c.h.router.opts.verify(ctx, path, c.h.key)
		},
		Warm:      warm,
		StillHeld: c.stillHeld,
		Prove:     c.h.lease.Check,
		Progress:  c.h.follow("download"),
	})
}

// stillHeld asks the store, which alone knows that the tenure is over; a store
// that does not answer says nothing of the kind. Before the fence nobody needs to be
// asked: the tenure goes on, and a renewal that waits for others would delay the
// opening.
func (c *copies) stillHeld() error {
	if c.h.lease.Check() == nil {
		return nil
	}
	if err := c.h.renewOnce(); errors.Is(err, coord.CodeLeaseLost) {
		return err
	}
	return c.h.lease.Ended()
}

func (c *copies) claim(ctx context.Context, from *copystore.Ref) (err error) {
	c.publisher, err = c.h.router.copies.Claim(ctx, c.h.lease.Grant(), from)
	return err
}

// Snapshot commits a copy of the ledger as it is and returns its manifest: what
// was acknowledged before the call survives a crash of this replica from then on.
// Calls that come together run one after the other. Writes go on meanwhile.
//
// It fails like Run where the tenant takes no work; with the copy store's error,
// or with [coord.CodeFenced], the copy is not committed and nothing else changes.
func (h *Handle) Snapshot(ctx context.Context) (copystore.Manifest, error) {
	if err := h.enter(); err != nil {
		return copystore.Manifest{}, err
	}
	defer h.leave()
	manifest, err := h.publish(ctx, always)
	h.endIfUseless(err)
	if err == nil {
		h.copies.retain(ctx)
		return manifest, nil
	}
	if ended := h.Err(); ended != nil {
		return copystore.Manifest{}, ended // which is why
	}
	return copystore.Manifest{}, err
}

// upToDate reports whether the newest committed copy, or the empty ledger that
// the tenant began with, is the ledger as it is.
func (c *copies) upToDate() bool { return c.covered.Load() == c.h.db.Commits() }

// publish commits a copy. It stops when ctx or the tenure ends.
func (h *Handle) publish(ctx context.Context, force bool) (copystore.Manifest, error) {
	c := h.copies
	if !c.begin() {
		return copystore.Manifest{}, h.serving()
	}
	defer c.mu.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	asked := h.now()
	var commits uint64
	var began time.Duration
	manifest, err := c.publisher.Publish(ctx, copystore.PublishRequest{
		Dir:    filepath.Dir(h.db.Path()),
		Needed: func() bool { return force || !c.upToDate() },
		TakeImage: func(ctx context.Context, path string) (int64, error) {
			began = h.now()
			commits = h.db.Commits() // before the image begins: the image may hold more
			if err := h.db.Image(ctx, path); err != nil {
				return 0, h.judgeFile(err)
			}
			return h.router.opts.Schema.Count(ctx, path)
		},
		Prove:     h.lease.Check,
		Progress:  h.follow("upload"),
		Committed: func() { c.covered.Store(commits); c.level.reached(began) },
	})
	err = noRoom(h.key, err)
	switch {
	case errors.Is(err, copystore.ErrNotNeeded):
		c.level.reached(asked)
		return copystore.Manifest{}, nil
	case err != nil:
		if h.Err() == nil { // else the end of the tenure says it all
			h.emit(Event{Kind: EventSnapshotFailed, Code: coord.CodeOf(err)})
			if !c.failing.Swap(true) {
				h.log().Warn("no copy was committed; a crash loses what came since the last one", zap.Error(err))
			}
		}
		return copystore.Manifest{}, err
	}
	if c.failing.Swap(false) {
		h.log().Info("copies are committed again", zap.Uint64("seq", manifest.Seq))
	}
	h.emit(Event{Kind: EventSnapshot, Seq: manifest.Seq, Took: h.now() - began})
	return manifest, nil
}

// begin counts a publish in, unless stop came first.
func (c *copies) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return false
	}
	c.mu.running.Add(1)
	return true
}

// stop ends publishing for good and returns when no publish runs any more.
func (c *copies) stop() {
	c.cancel()
	c.mu.Lock()
	c.mu.stopped = true
	c.mu.Unlock()
	c.mu.running.Wait()
}

// retain removes what the lineage does not need any more. What a failure leaves
// behind costs space only, and goes with the next one.
func (c *copies) retain(ctx context.Context) {
	if _, err := c.publisher.Retain(ctx, c.h.router.opts.KeepCopies); err != nil && ctx.Err() == nil {
		c.h.log().Warn("superseded copies remain", zap.Error(err))
	}
}

// forget deletes every object up to floor.
func (c *copies) forget(ctx context.Context, floor coord.Epoch) (int, error) {
	return c.h.router.copies.Forget(ctx, c.h.key, floor)
}

// sweep deletes what owners before the last forget uploaded after it: dead, but
// in the way of nobody.
func (c *copies) sweep() {
	floor := c.h.lease.Grant().ForgottenAt
	if floor == 0 || safeguards.Off(safeguards.Sweep) {
		return
	}
	if _, err := c.forget(c.ctx, floor); err != nil && c.ctx.Err() == nil {
		c.h.log().Warn("objects of a forgotten tenure remain", zap.Error(err))
	}
}
