package router

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// stillFor is how long nothing may have happened in the copy store, once the time of
	// Close is up and a call there is overdue, before what waits for it is left behind.
	stillFor = 10 * time.Second
	// stillEvery is how often Close looks.
	stillEvery = time.Second
)

// A closing is the work of one Close.
type closing struct {
	router  *Router
	tenants []*tenant     // in opening order
	gaveUp  chan struct{} // closed when what is left is left behind

	mu struct {
		sync.Mutex
		results map[*tenant]error // of those that are done with, or left behind
	}
}

func newClosing(r *Router, tenants []*tenant) *closing {
	c := &closing{router: r, tenants: tenants, gaveUp: make(chan struct{})}
	c.mu.results = make(map[*tenant]error)
	return c
}

// run closes the tenants, several at a time, and waits for everything that the router
// started but the events.
func (c *closing) run(ctx context.Context) {
	lanes := make(chan struct{}, c.router.opts.CloseConcurrency)
	var all sync.WaitGroup
	for _, t := range c.tenants {
		select {
		case lanes <- struct{}{}:
		case <-c.gaveUp:
			return
		}
		all.Go(func() {
			defer func() { <-lanes }()
			c.settle(t, c.router.closeTenant(ctx, t))
		})
	}
	all.Wait()
	c.router.openings.Wait()
	c.router.background.Wait()
}

// settle notes how a tenant ended, unless it was left behind: what becomes of it
// afterwards is not what Close reports. It returns false then.
func (c *closing) settle(t *tenant, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, settled := c.mu.results[t]; settled {
		return false
	}
	c.mu.results[t] = err
	return true
}

// await returns true when done is closed, and false if that is not to be expected: ctx has
// ended, a call of the copy store is overdue, and nothing has got on for a while. A copy
// that is only slow is waited for, because giving it up would lose what it saves.
func (c *closing) await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	clock := c.router.opts.Clock
	before, since := uint64(0), clock.Now()
	for {
		timer := clock.NewTimer(stillEvery)
		select {
		case <-done:
			timer.Stop()
			return true
		case <-timer.C():
		}
		moved, overdue := c.router.copies.Activity()
		if now := clock.Now(); moved != before || overdue == 0 {
			before, since = moved, now
		} else if now-since >= stillFor {
			return false
		}
	}
}

// leave ends the tenures that are left and gives their leases back, as far as that does not
// take what hangs.
func (c *closing) leave(ctx context.Context) {
	close(c.gaveUp)
	var all sync.WaitGroup
	left := 0
	for _, t := range c.tenants {
		if !c.settle(t, leftBehind(t.key)) {
			continue
		}
		left++
		if h := t.openHandle(); h != nil {
			all.Go(func() { _ = h.Abandon(ctx) }) // gives the lease back before it waits for anything
		}
	}
	c.router.opts.Logger.Error("calls of the copy store do not return; what waits for them is left behind", zap.Int("tenants", left))
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	timer := c.router.opts.Clock.NewTimer(c.router.opts.StoreTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
	}
}

func leftBehind(key coord.Key) error {
	return &coord.Error{
		Code: coord.CodeCopyStoreUnavailable, Op: "close", Key: key,
		Detail: "a call of the copy store has not returned though its time was over", Hint: "look at the file system of the copies",
	}
}

// result names what was not handed off.
func (c *closing) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := &CloseError{}
	for _, t := range c.tenants {
		if err := c.mu.results[t]; err != nil {
			failed.Tenants = append(failed.Tenants, TenantError{Key: t.key, Err: err})
		}
	}
	if len(failed.Tenants) > 0 {
		return failed
	}
	return nil
}
