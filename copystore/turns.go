package copystore

import (
	"context"
	"slices"
	"sync"
)

// turns lets one caller in at a time, in the order in which they came. The zero
// value is free.
type turns struct {
	mu struct {
		sync.Mutex
		taken   bool
		waiting []chan struct{} // oldest first; closed to hand the turn over
	}
}

// take waits for the caller's turn. It fails with ctx's error, without a turn, if
// ctx ends first.
func (t *turns) take(ctx context.Context) error {
	t.mu.Lock()
	if !t.mu.taken {
		t.mu.taken = true
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.mu.waiting = append(t.mu.waiting, mine)
	t.mu.Unlock()

	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	if !t.leave(mine) {
		t.give()
	}
	return ctx.Err()
}

// leave reports whether mine was still waiting; if not, the turn is its already.
func (t *turns) leave(mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.mu.waiting, mine)
	if i < 0 {
		return false
	}
	t.mu.waiting = slices.Delete(t.mu.waiting, i, i+1)
	return true
}

// give hands the turn to whoever has waited longest.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.waiting) == 0 {
		t.mu.taken = false
		return
	}
	close(t.mu.waiting[0])
	t.mu.waiting = slices.Delete(t.mu.waiting, 0, 1)
}
