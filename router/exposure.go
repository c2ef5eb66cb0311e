package router

import (
	"sync/atomic"
	"time"
)

// A level is when the newest committed copy was last known to hold all of the
// ledger, on the router's clock.
type level struct{ at atomic.Int64 }

// reached may be called out of order; what is known of later counts.
func (l *level) reached(now time.Duration) {
	for {
		at := l.at.Load()
		if at >= int64(now) || l.at.CompareAndSwap(at, int64(now)) {
			return
		}
	}
}

// Uncopied returns how old the oldest acknowledged write is, at most, that a crash
// of this replica would lose at this moment, and zero if there is none: the time
// since a copy was last known to hold everything, which [Options.SnapshotEvery] keeps
// looking after.
func (h *Handle) Uncopied() time.Duration {
	if h.copies.upToDate() {
		return 0
	}
	return h.now() - time.Duration(h.copies.level.at.Load())
}
