package coord

import "context"

// An EndWatcher is a [LeaseStore] that can tell a holder early that its lease is gone.
// A holder finds out at its next renewal in any case; hearing of it sooner makes the time
// short in which it goes on although the store ended the lease before its TTL was over,
// as only a store that breaks its promise does, or an operator.
type EndWatcher interface {
	// WatchEnds calls notify when a lease has ended, whoever held it, until ctx ends;
	// it returns ctx's error, or why it had to stop. The tenure is named by its key and
	// revision; a revision of 0 stands for whichever the store last granted. It calls
	// notify from one goroutine and reads no further while notify runs. It may miss
	// some.
	WatchEnds(ctx context.Context, notify func(Key, Revision)) error
}
