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
	return c.openBy(p.router.Open, p, key)
}

// openPatiently is open by somebody who asks the owner, and waits.
func (c *client) openPatiently(p *process, key coord.Key) (*router.Handle, error) {
	return c.openBy(func(ctx context.Context, key coord.Key) (*router.Handle, error) {
		there := p.router.HandleOf(key) != nil
		ctx, cancel := p.clock.WithTimeout(ctx, 2*c.w.cfg.TTL)
		defer cancel()
		h, err := p.router.OpenWait(ctx, key)
		if err == nil && !there {
			c.count(&c.w.stats.Waits)
		}
		return h, err
	}, p, key)
}

func (c *client) openBy(open func(context.Context, coord.Key) (*router.Handle, error), p *process, key coord.Key) (*router.Handle, error) {
	ctx := context.Background()
	h, err := open(ctx, key)
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
