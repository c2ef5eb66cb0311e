package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

const leases = "leases"

// A leaseClient is a process' half of the lease store, built as package etcdlease is: the
// keys of a process share one session, an acquisition is recognised by its nonce when its
// answer was lost, and a keepalive renews only those who asked before it was sent.
type leaseClient struct {
	p      *process
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // of the janitor, one slot

	mu struct {
		sync.Mutex
		stopped  bool
		session  string // empty if there is none that is known to be alive
		count    int    // of sessions and nonces
		tenures  map[coord.Key]tenure
		next     *round
		inFlight *round
		loose    []loose // what the janitor has to finish
		known    coord.Revision
		broken   bool // another, older store took the place of the one that was known
	}
}

// A tenure is a grant and the nonce of its acquisition, which no other grant has: a store
// that fell back counts epochs and revisions again.
type tenure struct {
	coord.Grant
	nonce string
}

// A loose end is an acquisition that nobody waits for, or a release that was not confirmed.
type loose struct {
	key     coord.Key
	nonce   string // of the acquisition
	granted bool   // and to be released
}

// A round is one keepalive on behalf of all who joined before it was sent.
type round struct {
	done chan struct{}
	kept kept
	err  error
}

func newLeaseClient(p *process) *leaseClient {
	c := &leaseClient{p: p, wake: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.tenures = make(map[coord.Key]tenure)
	p.world.goroutines.Go(c.cleanUp)
	return c
}

func (c *leaseClient) stop() {
	c.mu.Lock()
	c.mu.stopped = true
	c.mu.Unlock()
	c.cancel()
}

func (c *leaseClient) call(ctx context.Context, site, detail string, apply func()) error {
	return c.p.world.call(ctx, c.p, leases, site, detail, apply)
}

func (c *leaseClient) server() *leaseServer { return c.p.world.leases }

func unavailable(op string, key coord.Key, err error) error {
	return &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: op, Key: key, Err: err}
}

func (c *leaseClient) lost(op string, key coord.Key, detail string) error {
	return &coord.Error{Code: coord.CodeLeaseLost, Op: op, Key: key, Detail: detail}
}

// heard compares the store with the one that was known when the request was sent.
func (c *leaseClient) heard(known, revision coord.Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.broken = c.mu.broken || revision < known
	c.mu.known = max(c.mu.known, revision)
}

func (c *leaseClient) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.broken
}

// usable returns what is known of the store, or why it must not be used.
func (c *leaseClient) usable() (coord.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.broken {
		return 0, &coord.Error{Code: coord.CodeEpochRolledBack, Op: "lease store", Detail: "the store is older than it was"}
	}
	return c.mu.known, nil
}

// Read implements [coord.LeaseStore].
func (c *leaseClient) Read(ctx context.Context, key coord.Key) (coord.Record, bool, error) {
	var record coord.Record
	var known bool
	if err := c.call(ctx, "read", key.String(), func() { record, known = c.server().record(key) }); err != nil {
		return coord.Record{}, false, unavailable("read", key, err)
	}
	return record, known, nil
}

// Acquire implements [coord.LeaseStore].
func (c *leaseClient) Acquire(ctx context.Context, key coord.Key, owner string, ttl time.Duration) (coord.Grant, error) {
	if err := c.finish(ctx, key); err != nil {
		return coord.Grant{}, unavailable("acquire", key, err)
	}
	known, err := c.usable()
	if err != nil {
		return coord.Grant{}, err
	}
	id, fresh, nonce := c.prepare()
	var a acquired
	err = c.call(ctx, "acquire", key.String(), func() { a = c.server().acquire(nonce, key, owner, id, ttl) })
	if err != nil {
		if a, err = c.recoverAnswer(ctx, key, nonce, err); err != nil {
			return coord.Grant{}, unavailable("acquire", key, err)
		}
		fresh = false
	}
	c.heard(known, a.revision)
	if _, err := c.usable(); err != nil {
		c.leave(loose{key: key, nonce: nonce})
		return coord.Grant{}, err
	}
	switch {
	case a.gone:
		c.forgetSession(id)
		return coord.Grant{}, unavailable("acquire", key, fmt.Errorf("the session is over"))
	case a.held != nil:
		return coord.Grant{}, a.held
	}
	return c.cover(ctx, a.grant, id, nonce, fresh)
}

// prepare returns the session to hang a key on, and a nonce.
func (c *leaseClient) prepare() (id string, fresh bool, nonce string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.count++
	if fresh = c.mu.session == ""; fresh {
		c.mu.session = fmt.Sprintf("%s/%d", c.p.id, c.mu.count)
	}
	return c.mu.session, fresh, fmt.Sprintf("%s#%d", c.p.id, c.mu.count)
}

// recoverAnswer finds out what became of an acquisition whose answer was lost.
func (c *leaseClient) recoverAnswer(ctx context.Context, key coord.Key, nonce string, cause error) (acquired, error) {
	if safeguards.Off(safeguards.NonceRecognition) {
		return acquired{}, cause
	}
	var a acquired
	err := c.call(ctx, "settle", key.String(), func() { a = c.server().settle(nonce, key, false) })
	switch {
	case err != nil:
		c.leave(loose{key: key, nonce: nonce})
		return acquired{}, cause
	case a.void:
		return acquired{}, cause
	}
	return a, nil
}

// cover reports a grant once the session is known to be alive long enough for it. One that
// began with the acquisition is; any other is from a keepalive that was sent after it.
func (c *leaseClient) cover(ctx context.Context, g coord.Grant, id, nonce string, fresh bool) (coord.Grant, error) {
	if !fresh {
		r, err := c.await(ctx, c.join(), g.Key)
		if err == nil && r.kept.keys[g.Key] != g.Epoch {
			err = fmt.Errorf("the key is not on the session any more")
		}
		if err != nil {
			c.leave(loose{key: g.Key, nonce: nonce})
			return coord.Grant{}, unavailable("acquire", g.Key, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.tenures[g.Key] = tenure{g, nonce}
	return g, nil
}

func (c *leaseClient) forgetSession(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.session == id {
		c.mu.session = ""
	}
}

// Renew implements [coord.LeaseStore].
func (c *leaseClient) Renew(ctx context.Context, t coord.Tenure, _ time.Duration) (coord.Grant, error) {
	c.mu.Lock()
	g, known := c.mu.tenures[t.Key]
	broken := c.mu.broken
	c.mu.Unlock()
	if !known || g.Tenure != t || broken {
		return coord.Grant{}, c.lost("renew", t.Key, "this store knows no such tenure")
	}
	r, err := c.await(ctx, c.join(), t.Key)
	if err != nil {
		return coord.Grant{}, unavailable("renew", t.Key, err)
	}
	if _, err := c.usable(); err != nil {
		return coord.Grant{}, c.lost("renew", t.Key, err.Error())
	}
	if r.kept.gone || r.kept.keys[t.Key] != t.Epoch {
		return coord.Grant{}, c.lost("renew", t.Key, "the lease has ended")
	}
	g.TTL = r.kept.ttl
	c.p.world.truth.renewed(t)
	return g.Grant, nil
}

// join returns a round whose keepalive has not been sent.
func (c *leaseClient) join() *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	if safeguards.Off(safeguards.KeepaliveAfterAsk) && c.mu.inFlight != nil {
		return c.mu.inFlight
	}
	if c.mu.next == nil {
		c.mu.next = &round{done: make(chan struct{})}
		if c.mu.inFlight == nil && !c.mu.stopped {
			c.mu.inFlight = c.mu.next
			c.mu.next = nil
			r := c.mu.inFlight
			c.p.world.goroutines.Go(func() { c.runRounds(r) })
			return r
		}
	}
	return c.mu.next
}

// await waits for a round. Those who waited together go on one by one.
func (c *leaseClient) await(ctx context.Context, r *round, key coord.Key) (*round, error) {
	select {
	case <-r.done:
		c.p.world.yield(c.p, "leases.kept", key.String())
		return r, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, errGone
	}
}

// runRounds sends one keepalive after the other while somebody asks.
func (c *leaseClient) runRounds(r *round) {
	for r != nil {
		c.mu.Lock()
		id, known := c.mu.session, c.mu.known
		c.mu.Unlock()
		ctx, cancel := c.p.clock.WithTimeout(c.ctx, c.p.world.cfg.TTL/2)
		one := r // a keepalive may land when the next round is under way
		r.err = c.call(ctx, "keepalive", id, func() { one.kept = c.server().keepAlive(id) })
		cancel()
		if r.err == nil {
			c.heard(known, r.kept.revision)
			if r.kept.gone {
				c.forgetSession(id)
			}
		}
		close(r.done)
		c.mu.Lock()
		r, c.mu.next = c.mu.next, nil
		if c.mu.stopped {
			r = nil
		}
		c.mu.inFlight = r
		c.mu.Unlock()
	}
}

// Release implements [coord.LeaseStore].
func (c *leaseClient) Release(ctx context.Context, t coord.Tenure) error {
	c.mu.Lock()
	g, known := c.mu.tenures[t.Key]
	if known && g.Tenure == t {
		delete(c.mu.tenures, t.Key)
	}
	c.mu.Unlock()
	if !known || g.Tenure != t {
		return nil // a release that was begun is finished by the janitor
	}
	current := false
	err := c.call(ctx, "release", t.Key.String(), func() {
		current = c.server().state.keys[t.Key].epoch == t.Epoch
		c.server().remove(t.Key, g.nonce)
	})
	if err != nil {
		c.leave(loose{key: t.Key, nonce: g.nonce, granted: true})
		return unavailable("release", t.Key, err)
	}
	if !current {
		return c.lost("release", t.Key, "the latest grant is another one")
	}
	return nil
}

// MarkForgotten implements [coord.LeaseStore].
func (c *leaseClient) MarkForgotten(ctx context.Context, t coord.Tenure) (coord.Epoch, error) {
	var floor coord.Epoch
	var ok bool
	if err := c.call(ctx, "forget", t.Key.String(), func() { floor, ok = c.server().forget(t) }); err != nil {
		return 0, unavailable("forget", t.Key, err)
	}
	if !ok {
		return 0, c.lost("forget", t.Key, "the lease is not held by this tenure")
	}
	return floor, nil
}
