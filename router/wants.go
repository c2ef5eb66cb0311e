package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// yieldFor bounds how long an opening leaves a tenant that has come free to a
	// replica that waits for it. A waiter that lives needs a few milliseconds.
	yieldFor = time.Second
	// Between looks whether the waiter has the tenant.
	minYieldPause = 2 * time.Millisecond
	maxYieldPause = 50 * time.Millisecond

	// maxNoted is how many wanted tenants are remembered. Forgetting one costs its
	// waiter the courtesy, and nothing else.
	maxNoted = 4096
)

// watchWants hears of the requests of other replicas until the router closes.
func (r *Router) watchWants(store coord.WantStore) {
	r.watch("requests of other replicas for tenants are not heard", func() error {
		return store.WatchWants(r.opening, func(w coord.Want) { r.wanted(store, w) })
	})
}

// wanted is told of each request of any replica for any tenant.
func (r *Router) wanted(store coord.WantStore, w coord.Want) {
	if w.Asker == r.opts.ReplicaID {
		return
	}
	r.note(w.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.mu.tenants[w.Key]; t != nil && !r.mu.closed && r.opts.MinTenure > 0 {
		r.background.Go(func() { r.honour(store, t, w) })
	}
}

// honour hands the tenant off if the request still stands once the tenure is as old
// as it has to be. What cannot be handed off then is tried again as much later.
func (r *Router) honour(store coord.WantStore, t *tenant, w coord.Want) {
	<-t.opened // bounded: openings are bounded
	h := t.handle
	if h == nil {
		return // the asker asks anew when the tenant has another owner
	}
	for wait := h.untilOld(); h.sleep(wait); {
		if wait = r.opts.MinTenure; h.moving.Load() {
			continue
		}
		if young := h.untilOld(); young > 0 {
			wait = young
			continue
		}
		asked, err := r.asks(store, w)
		if err == nil && !asked || r.opening.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		if err := h.Handoff(r.opening); err == nil {
			h.log().Info("handed off on request", zap.String("asker", w.Asker))
		}
	}
}

// untilOld returns how long the tenure has to go on before requests are honoured.
func (h *Handle) untilOld() time.Duration {
	return h.router.opts.MinTenure - (h.router.opts.Clock.Now() - time.Duration(h.settled.Load()))
}

// asks reports whether w still stands.
func (r *Router) asks(store coord.WantStore, w coord.Want) (bool, error) {
	ctx, cancel := coord.WithTimeout(r.opening, r.opts.Clock, r.opts.StoreTimeout)
	defer cancel()
	wants, err := store.Wants(ctx, w.Key)
	return slices.ContainsFunc(wants, func(s coord.Want) bool { return s.Asker == w.Asker }), err
}

// note remembers that some replica wants the tenant, so that an opening here looks
// whether it still does.
func (r *Router) note(key coord.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.noted) >= maxNoted {
		clear(r.mu.noted)
	}
	r.mu.noted[key] = true
}

func (r *Router) isNoted(key coord.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.noted[key]
}

func (r *Router) unnote(key coord.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.noted, key)
}

// yield lets a replica that waits for the tenant have it first, for a moment: else
// the requests that meet a tenant just handed to a successor would open it where
// they happen to arrive. It fails with a [*coord.LeaseHeldError] once somebody else
// has the tenant.
func (r *Router) yield(ctx context.Context, key coord.Key) error {
	if !r.isNoted(key) {
		return nil
	}
	record, asked := r.awaitTaken(ctx, key, func(w coord.Want) bool { return w.Asker != r.opts.ReplicaID })
	if !asked {
		r.unnote(key)
	}
	if record.Held && record.Owner != r.opts.ReplicaID {
		return &coord.LeaseHeldError{Record: record}
	}
	return nil // an earlier tenure of ours may not be over yet
}

// AwaitSuccessor is for a request that found a tenant which nobody holds: if some replica
// has asked for it, the tenant is on its way there. AwaitSuccessor waits for that, no longer
// than a second, and reports whether somebody holds the tenant now.
func (r *Router) AwaitSuccessor(ctx context.Context, key coord.Key) bool {
	record, _ := r.awaitTaken(ctx, key, func(coord.Want) bool { return true })
	return record.Held
}

// awaitTaken waits for a moment while nobody holds the tenant and a replica that counts has
// asked for it. It returns the last record that it saw, and false if there was no such
// replica. What goes wrong ends the wait: an acquisition will say what it is.
func (r *Router) awaitTaken(ctx context.Context, key coord.Key, counts func(coord.Want) bool) (record coord.Record, asked bool) {
	store, ok := r.opts.Leases.(coord.WantStore)
	if !ok {
		return record, false
	}
	ctx, cancel := coord.WithTimeout(ctx, r.opts.Clock, yieldFor)
	defer cancel()
	for pause := minYieldPause; ; pause = min(2*pause, maxYieldPause) {
		wants, err := store.Wants(ctx, key)
		if err != nil {
			return record, true
		}
		asked = slices.ContainsFunc(wants, counts)
		record, _, err = r.opts.Leases.Read(ctx, key) // afterwards: who has the tenant asks no more
		if err != nil || record.Held || !asked || !r.pause(ctx, pause) {
			return record, asked || err != nil
		}
	}
}

// pause returns false if ctx ended first.
func (r *Router) pause(ctx context.Context, d time.Duration) bool {
	timer := r.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// A request is a replica's own want, which it makes anew whenever the tenant has
// another owner: an owner hears of it once.
type request struct {
	router   *Router
	key      coord.Key
	at       coord.Epoch // the epoch of the owner that it was made to
	withdraw func(ctx context.Context) error
}

// renew asks the owner at epoch, if that is not the one asked last.
func (q *request) renew(ctx context.Context, epoch coord.Epoch) error {
	store, ok := q.router.opts.Leases.(coord.WantStore)
	if !ok || q.withdraw != nil && q.at == epoch {
		return nil
	}
	q.end()
	ctx, cancel := coord.WithTimeout(ctx, q.router.opts.Clock, q.router.opts.StoreTimeout)
	defer cancel()
	withdraw, err := store.Want(ctx, q.key, q.router.opts.ReplicaID)
	switch {
	case err == nil:
		q.at, q.withdraw = epoch, withdraw
	case errors.Is(err, coord.CodeLeaseStoreUnavailable):
		err = nil // made with the next look
	}
	return err
}

// end takes the request back.
func (q *request) end() {
	if q.withdraw == nil {
		return
	}
	ctx, cancel := coord.WithTimeout(context.Background(), q.router.opts.Clock, q.router.opts.StoreTimeout)
	defer cancel()
	if err := q.withdraw(ctx); err != nil {
		q.router.opts.Logger.Warn("a request for a tenant could not be withdrawn and stands until this replica stops", zap.Stringer("tenant", q.key), zap.Error(err))
	}
	q.withdraw = nil
}
