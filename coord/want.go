package coord

import (
	"context"
	"time"
)

// A Want is a replica's request that the owner of a tenant hand it off. It is a
// wish, not a claim: once the tenant is free, whoever acquires first has it.
type Want struct {
	Key     Key
	Asker   string    // the owner's name under which the asker acquires
	Address string    // where the asker can be reached; may be empty
	Since   time.Time // on the asker's calendar, to the millisecond
}

// A WantStore is a [LeaseStore] through which replicas ask each other for tenants.
// Not every binding is one: without it a replica can still wait until an owner lets
// go by itself.
type WantStore interface {
	// Want asks the owner of key to hand it off to asker. The request stands until
	// withdraw is called or the asker has died; asking again changes nothing. After
	// an error nothing stands, or it ends with the asker. withdraw may be called
	// more than once.
	Want(ctx context.Context, key Key, asker string) (withdraw func(ctx context.Context) error, err error)

	// Wants returns the requests for key that stand, in the order of their askers.
	Wants(ctx context.Context, key Key) ([]Want, error)

	// WatchWants calls notify with each request for any key, first with those that
	// stand already, until ctx ends; it returns ctx's error, or why it had to stop.
	// It calls notify from one goroutine and reads no further while notify runs. A
	// request that is withdrawn at once it may miss.
	WatchWants(ctx context.Context, notify func(Want)) error
}
