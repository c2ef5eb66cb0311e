package sim

import (
	"cmp"
	"context"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

var (
	_ coord.LeaseStore    = (*leaseClient)(nil)
	_ coord.ReleaseWaiter = (*leaseClient)(nil)
	_ coord.WantStore     = (*leaseClient)(nil)
	_ coord.EndWatcher    = (*leaseClient)(nil)
)

// A wish is a request of a replica for a tenant. It hangs on its asker as keys hang on a
// session.
type wish struct {
	key    coord.Key
	asker  *process
	number int // in the order in which they were made
}

// stands reports whether a wish still does: its asker lives, or has not been dead for long.
func (s *leaseServer) stands(w wish) bool {
	return !w.asker.isGone() || s.w.now() < w.asker.goneAt+s.w.cfg.TTL
}

func (s *leaseServer) want(key coord.Key, asker *process) {
	if slices.ContainsFunc(s.wishes, func(w wish) bool { return w.key == key && w.asker == asker }) {
		return
	}
	s.wished++
	s.wishes = append(s.wishes, wish{key, asker, s.wished})
}

func (s *leaseServer) withdraw(key coord.Key, asker *process) {
	s.wishes = slices.DeleteFunc(s.wishes, func(w wish) bool { return w.key == key && w.asker == asker })
}

// standing returns the wishes that stand, oldest first.
func (s *leaseServer) standing() []wish {
	return slices.DeleteFunc(slices.Clone(s.wishes), func(w wish) bool { return !s.stands(w) })
}

func (w wish) want() coord.Want {
	return coord.Want{Key: w.key, Asker: w.asker.id, Since: epochStart}
}

// watch is a call whose request is answered when there is something to tell.
func (c *leaseClient) watch(ctx context.Context, site, detail string, until func() bool, apply func()) error {
	o := &op{proc: c.p, site: leases + "." + site, detail: detail, target: leases, ctx: ctx, apply: apply, until: until}
	c.p.world.park(o)
	return o.err
}

// mine tells apart the clients that wait for one tenant at one replica.
func (c *leaseClient) mine(key coord.Key) string { return key.String() + " " + c.p.world.whose() }

// WaitReleased implements [coord.ReleaseWaiter].
func (c *leaseClient) WaitReleased(ctx context.Context, key coord.Key) error {
	free := func() bool { return !c.server().held(c.server().state.keys[key]) }
	if err := c.watch(ctx, "wait", c.mine(key), free, func() {}); err != nil {
		return unavailable("wait", key, err)
	}
	return nil
}

// Want implements [coord.WantStore].
func (c *leaseClient) Want(ctx context.Context, key coord.Key, _ string) (func(context.Context) error, error) {
	withdraw := func(ctx context.Context) error {
		return c.call(ctx, "withdraw", c.mine(key), func() { c.server().withdraw(key, c.p) })
	}
	if err := c.call(ctx, "want", c.mine(key), func() { c.server().want(key, c.p) }); err != nil {
		return nil, unavailable("want", key, err)
	}
	return withdraw, nil
}

// Wants implements [coord.WantStore].
func (c *leaseClient) Wants(ctx context.Context, key coord.Key) ([]coord.Want, error) {
	var wants []coord.Want
	err := c.call(ctx, "wants", key.String(), func() {
		for _, w := range c.server().standing() {
			if w.key == key {
				wants = append(wants, w.want())
			}
		}
	})
	if err != nil {
		return nil, unavailable("list requests", key, err)
	}
	slices.SortFunc(wants, func(a, b coord.Want) int { return cmp.Compare(a.Asker, b.Asker) })
	return wants, nil
}

// WatchWants implements [coord.WantStore]. Of each tenant it tells one request after the other,
// when what it told before does not stand any more; and while an opening is under way, one at
// most: what hears of them waits for the opening, and wakes in no particular order.
func (c *leaseClient) WatchWants(ctx context.Context, notify func(coord.Want)) error {
	told := make(map[coord.Key]wish)
	next := func() (wish, bool) {
		standing := c.server().standing()
		for _, w := range standing {
			before, any := told[w.key]
			if !any || w.number > before.number && !slices.Contains(standing, before) && c.p.router.HandleOf(w.key) != nil {
				return w, true
			}
		}
		return wish{}, false
	}
	for {
		var one wish
		err := c.watch(ctx, "watch-wants", "", func() bool { _, any := next(); return any }, func() {
			if w, any := next(); any {
				one, told[w.key] = w, w
			}
		})
		if err != nil {
			return err
		}
		if one.number > 0 {
			notify(one.want())
		}
	}
}

// WatchEnds implements [coord.EndWatcher]. A tenure that had a successor before anybody looked
// is missed. It tells one end at a time: whoever hears of one does something at once.
func (c *leaseClient) WatchEnds(ctx context.Context, notify func(coord.Key, coord.Revision)) error {
	told := make(map[coord.Key]coord.Revision)
	next := func() int {
		return slices.IndexFunc(c.p.world.keys, func(key coord.Key) bool {
			r := c.server().state.keys[key]
			return r.revision != told[key] && !c.server().held(r)
		})
	}
	for {
		ended := -1
		err := c.watch(ctx, "watch-ends", "", func() bool { return next() >= 0 }, func() {
			if ended = next(); ended >= 0 {
				key := c.p.world.keys[ended]
				told[key] = c.server().state.keys[key].revision
			}
		})
		if err != nil {
			return err
		}
		if ended >= 0 {
			key := c.p.world.keys[ended]
			notify(key, told[key])
		}
	}
}
