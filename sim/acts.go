package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
	"github.com/leaseholddb/leasehold/sim/history"
)

const (
	appended = "append"
	assigned = "set"
)

func (c *client) run(h *router.Handle, p *process, work func(ctx context.Context, v *router.View) error) error {
	return h.Run(context.Background(), func(ctx context.Context, v *router.View) error {
		if !p.isGone() {
			c.w.truth.holds(tenureOf(h, p), behindTheFence, "began to work")
		}
		return work(ctx, v)
	})
}

func (c *client) append(h *router.Handle, p *process) {
	value := c.nextAppend(h)
	one := c.invoke(p, h, history.Append, value)
	err := c.run(h, p, func(ctx context.Context, v *router.View) error {
		return ignoreConflict(v.Ledger().Append(ctx, event(appended, value, h)))
	})
	c.finish(one, h, err, history.Event{})
}

// ignoreConflict takes a value that another epoch wrote for what it is: there already.
func ignoreConflict(_ ledger.Event, _ bool, err error) error {
	if errors.Is(err, coord.CodeIdempotencyConflict) {
		return nil
	}
	return err
}

// appendPlainly does not count as work in flight.
func (c *client) appendPlainly(h *router.Handle, p *process) {
	value := c.newValue()
	one := c.invoke(p, h, history.Append, value)
	err := ignoreConflict(h.Ledger().Append(context.Background(), event(appended, value, h)))
	c.finish(one, h, err, history.Event{})
}

const insert = `INSERT INTO events (tenant_id, ts, actor, kind, subject_id, payload, idem_key) VALUES (?, ?, ?, ?, ?, 'null', ?) RETURNING seq`

// appendInParts leaves its statement half done for a while, so that the commit comes long
// after the proof before the work.
func (c *client) appendInParts(h *router.Handle, p *process) {
	value := c.newValue()
	one := c.invoke(p, h, history.Append, value)
	e := event(appended, value, h)
	rows, err := h.DB().QueryContext(context.Background(), insert, h.Key().Tenant(), e.Time.UnixMilli(), e.Actor, e.Kind, e.SubjectID, e.IdemKey)
	if err != nil {
		c.finish(one, h, err, history.Event{})
		return
	}
	rows.Next()
	err = rows.Err()
	c.rest(time.Duration(c.rng.Int64N(int64(c.w.cfg.TTL))) >> c.rng.IntN(6))
	tenure := tenureOf(h, p)
	renewals := c.w.truth.renewals(tenure)
	fenced := c.look(h)
	closed := rows.Close()
	if err == nil {
		err = closed
	}
	if fenced && !p.isGone() && err != nil && errors.Is(err, coord.CodeOutcomeUnknown) && renewals == c.w.truth.renewals(tenure) {
		c.w.truth.complain(behindTheFence, h.Key(), "%s committed %s at epoch %d, which it knew to be over", p.id, value, h.Epoch())
	}
	c.finish(one, h, err, history.Event{})
}

// look asks the gate.
func (c *client) look(h *router.Handle) (fenced bool) { return h.Check() != nil }

func (c *client) set(h *router.Handle, p *process) {
	value := c.newValue()
	one := c.invoke(p, h, history.Set, value)
	err := c.run(h, p, func(ctx context.Context, v *router.View) error {
		tx, err := v.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		c.rest(time.Duration(c.rng.Int64N(int64(c.w.cfg.TTL))) >> (2 + c.rng.IntN(8)))
		if _, _, err := v.Ledger().AppendTx(ctx, tx, event(assigned, value, h)); err != nil {
			return err
		}
		return tx.Commit()
	})
	c.finish(one, h, err, history.Event{})
}

// actorsSQL lists values in the order in which they were written.
const actorsSQL = `SELECT actor FROM events WHERE kind = ? ORDER BY seq`

func actors(ctx context.Context, db *sql.DB, kind string) ([]string, error) {
	rows, err := db.QueryContext(ctx, actorsSQL, kind)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var actor string
		if err := rows.Scan(&actor); err != nil {
			return nil, err
		}
		all = append(all, actor)
	}
	return all, rows.Err()
}

func (c *client) read(h *router.Handle, p *process) {
	one := c.invoke(p, h, history.Read, "")
	var values []string
	err := c.run(h, p, func(ctx context.Context, v *router.View) (err error) {
		values, err = actors(ctx, v.DB(), appended)
		return err
	})
	c.finish(one, h, err, history.Event{Values: values})
}

func (c *client) readPlainly(h *router.Handle, p *process) {
	one := c.invoke(p, h, history.Read, "")
	values, err := actors(context.Background(), h.DB(), appended)
	c.finish(one, h, err, history.Event{Values: values})
}

func (c *client) get(h *router.Handle, p *process) {
	one := c.invoke(p, h, history.Get, "")
	var values []string
	err := c.run(h, p, func(ctx context.Context, v *router.View) (err error) {
		values, err = actors(ctx, v.DB(), assigned)
		return err
	})
	if len(values) > 1 {
		values = values[len(values)-1:]
	}
	c.finish(one, h, err, history.Event{Values: values})
}

func (c *client) snapshot(h *router.Handle, p *process) {
	one := c.invoke(p, h, history.Snapshot, "")
	_, err := h.Snapshot(context.Background())
	c.finish(one, h, err, history.Event{})
}

func (c *client) handOff(h *router.Handle, p *process) {
	one := c.invoke(p, h, history.Handoff, "")
	c.finish(one, h, handedOff(h.Handoff(context.Background())), history.Event{})
}

// handedOff takes from an error the promise that nothing has happened.
func handedOff(err error) error {
	if coord.CodeOf(err) == coord.CodeFenced {
		return errors.New("not handed off")
	}
	return err
}

// move hands the tenant to another replica, which fetches the newest copy before that.
func (c *client) move(h *router.Handle, p *process) {
	to := c.w.replicas[(p.index+1+c.rng.IntN(max(len(c.w.replicas)-1, 1)))%len(c.w.replicas)].proc
	if to == nil || to == p {
		return
	}
	one := c.invoke(p, h, history.Handoff, "")
	var waits sync.WaitGroup
	discard := func() {}
	err := h.HandoffTo(context.Background(), func(ctx context.Context) (err error) {
		if _, discard, err = to.router.Prewarm(ctx, h.Key()); err != nil {
			discard = func() {}
			return err
		}
		helper := c.w.newClient(helpers + c.n)
		waits.Go(func() {
			helper.rest(0)
			_, _ = helper.openPatiently(to, h.Key())
		})
		return nil
	})
	c.finish(one, h, handedOff(err), history.Event{})
	if err == nil {
		c.count(&c.w.stats.Moves)
	}
	waits.Wait()
	discard()
}

func (c *client) count(what *int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	*what++
}

// helpers is above the numbers of clients, of which each may need one.
const helpers = 1000

func (c *client) abandon(h *router.Handle, _ *process) { _ = h.Abandon(context.Background()) }

func (c *client) forget(h *router.Handle, p *process) {
	// A forget opens the tenant if it has to.
	m, end := p.begins(asking, h.Key())
	defer end()
	if m != asking {
		return
	}
	one := c.invoke(p, h, history.Forget, "")
	done, err := p.router.Forget(context.Background(), h.Key())
	if err != nil {
		err = fmt.Errorf("not forgotten, or not wholly: %w", errors.New(err.Error()))
	}
	c.finish(one, h, err, history.Event{Epoch: done.Floor})
}

// linger keeps a piece of work running for a while.
func (c *client) linger(h *router.Handle, p *process) {
	_ = c.run(h, p, func(context.Context, *router.View) error {
		c.rest(c.w.cfg.TTL / 2)
		return nil
	})
}
