package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// leave hands a loose end to the janitor.
func (c *leaseClient) leave(l loose) {
	if safeguards.Off(safeguards.NonceRecognition) && !l.granted {
		return
	}
	c.mu.Lock()
	c.mu.loose = append(c.mu.loose, l)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// finish ties up the loose ends of one key, so that a process does not find the door shut
// by itself.
func (c *leaseClient) finish(ctx context.Context, key coord.Key) error {
	for _, l := range c.ends() {
		if l.key == key {
			if err := c.tie(ctx, "tidy-first", l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *leaseClient) ends() []loose {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.mu.loose)
	slices.SortStableFunc(all, func(a, b loose) int { return strings.Compare(a.key.String()+a.nonce, b.key.String()+b.nonce) })
	return all
}

func (c *leaseClient) tie(ctx context.Context, site string, l loose) error {
	err := c.call(ctx, site, l.key.String()+l.nonce, func() {
		if l.granted {
			c.server().remove(l.key, l.nonce)
			return
		}
		c.server().settle(l.nonce, l.key, true)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.loose = slices.DeleteFunc(c.mu.loose, func(o loose) bool { return o == l })
	return nil
}

// cleanUp is the janitor: it ties up loose ends until there are none.
func (c *leaseClient) cleanUp() {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		for len(c.ends()) > 0 && c.ctx.Err() == nil {
			ctx, cancel := c.p.clock.WithTimeout(c.ctx, c.p.world.cfg.TTL/2)
			for _, l := range c.ends() {
				if c.tie(ctx, "tidy-later", l) != nil {
					break
				}
			}
			cancel()
			if len(c.ends()) > 0 && !c.sleep(c.p.world.cfg.TTL/10) {
				return
			}
		}
	}
}

func (c *leaseClient) sleep(d time.Duration) bool {
	t := c.p.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-c.ctx.Done():
		return false
	}
}
