package sim

import (
	"context"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

// choose prefers the replica that has the tenant open.
func (c *client) choose(key coord.Key) *process {
	any := c.rng.IntN(5) == 0
	var up []*process
	for _, r := range c.w.replicas {
		if r.proc == nil {
			continue
		}
		if !any && r.proc.router.HandleOf(key) != nil {
			return r.proc
		}
		up = append(up, r.proc)
	}
	if len(up) == 0 {
		return nil
	}
	return up[c.rng.IntN(len(up))]
}

// open opens the tenant, and reads what it started from if it is the first to have it.
func (c *client) open(p *process, key coord.Key) (*router.Handle, error) {
	return c.openBy(asking, p, key)
}

// openPatiently is open by somebody who asks the owner, and waits.
func (c *client) openPatiently(p *process, key coord.Key) (*router.Handle, error) {
	return c.openBy(patient, p, key)
}

// A manner is how clients open a tenant at one replica. Those who do it at the same time do
// it in the same manner: if what all wait for is over in one step, any of them may be the
// first to begin anew, and it must not matter which.
type manner int

const (
	asking manner = iota
	patient
)

// openers are those who open one tenant at one replica.
type openers struct {
	manner manner
	n      int
}

// begins returns in which manner to open a tenant, and what to do when that has ended.
func (p *process) begins(m manner, key coord.Key) (manner, func()) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	all := p.openers[key]
	if all == nil {
		all = &openers{}
		p.openers[key] = all
	}
	if all.n == 0 {
		all.manner = m
	}
	all.n++
	return all.manner, func() {
		p.world.mu.Lock()
		defer p.world.mu.Unlock()
		all.n--
	}
}

func (c *client) openAs(m manner, p *process, key coord.Key) (*router.Handle, error) {
	m, end := p.begins(m, key)
	defer end()
	if m == asking {
		return p.router.Open(context.Background(), key)
	}
	there := p.router.HandleOf(key) != nil
	ctx, cancel := p.clock.WithTimeout(context.Background(), 2*c.w.cfg.TTL)
	defer cancel()
	h, err := p.router.OpenWait(ctx, key)
	if err == nil && !there {
		c.count(&c.w.stats.Waits)
	}
	return h, err
}

func (c *client) openBy(m manner, p *process, key coord.Key) (*router.Handle, error) {
	ctx := context.Background()
	h, err := c.openAs(m, p, key)
	if p.isGone() {
		return nil, errGone
	}
	c.w.truth.openEnded(p, key, err)
	if err != nil {
		return nil, err
	}
	c.rest(0) // others waited for the same opening
	tenure := tenureOf(h, p)
	if p.isGone() || !c.w.truth.opens(tenure) {
		return h, nil
	}
	if events, err := ledger.New(h.DB(), key).Read(ctx, 0, 0); err == nil && !p.isGone() {
		var entries []entry
		for _, e := range events {
			if epoch, err := coord.ParseEpoch(e.SubjectID); err == nil && epoch < h.Epoch() {
				entries = append(entries, entry{string(e.Actor), epoch})
			}
		}
		c.w.truth.started(c.source(), tenure, entries)
	}
	return h, nil
}

func tenureOf(h *router.Handle, p *process) coord.Tenure {
	return coord.Tenure{Key: h.Key(), Owner: p.id, Epoch: h.Epoch()}
}
