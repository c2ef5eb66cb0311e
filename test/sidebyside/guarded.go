package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/router"
)

// guarded keeps the register in a tenant. Every client is a replica.
type guarded struct{ *worker }

func (g *guarded) title() string { return "leasehold, a replica for each client" }

// tenant is the key of the register.
func tenant() (coord.Key, error) {
	return coord.NewKey("sidebyside", "t-00000000000000000000000000000001")
}

// with calls work with a replica.
func (g *guarded) with(ctx context.Context, ttl time.Duration, work func(coord.Key, *etcdlease.Store, *router.Router) error) (err error) {
	key, err := tenant()
	if err != nil {
		return err
	}
	leases, err := etcdlease.Open(ctx, etcdlease.Config{Endpoints: []string{g.etcd}, Options: etcdlease.Options{RequestTimeout: ttl}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leases.Close()) }()
	copies, err := dirstore.New(filepath.Join(g.dir, "copies"), dirstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copies.Close()) }()
	r, err := router.New(router.Options{ReplicaID: g.name, StateRoot: filepath.Join(g.dir, g.name), Leases: leases, Copies: copies, LeaseTTL: ttl})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(context.WithoutCancel(ctx))) }()
	return work(key, leases, r)
}

// unharmed is the time to live where nobody is stopped.
const unharmed = time.Minute

func (g *guarded) create(ctx context.Context) error {
	return g.with(ctx, unharmed, func(key coord.Key, _ *etcdlease.Store, r *router.Router) error {
		h, err := r.Open(ctx, key)
		if err != nil {
			return err
		}
		return h.Run(ctx, func(ctx context.Context, v *router.View) error {
			_, err := v.DB().ExecContext(ctx, createRegister)
			return err
		})
	})
}

func (g *guarded) read(ctx context.Context) (value string, err error) {
	err = g.with(ctx, unharmed, func(key coord.Key, leases *etcdlease.Store, r *router.Router) error {
		if err := leases.WaitReleased(ctx, key); err != nil {
			return err
		}
		h, err := r.Open(ctx, key)
		if err != nil {
			return err
		}
		return h.DB().QueryRowContext(ctx, readRegister).Scan(&value)
	})
	return value, err
}

func (g *guarded) updates(ctx context.Context) error {
	return g.with(ctx, g.ttl, func(key coord.Key, leases *etcdlease.Store, r *router.Router) error {
		for ctx.Err() == nil {
			h, err := r.Open(ctx, key)
			switch {
			case errors.Is(err, coord.CodeLeaseHeld):
				_ = leases.WaitReleased(ctx, key) // and ask again, whatever came of it
			case err != nil:
				sleep(ctx, g.think)
			default:
				g.update(context.WithoutCancel(ctx), h)
			}
		}
		return nil
	})
}

// update makes one update and hands the tenant off, as the plain side unlocks. The
// update counts as acknowledged once a copy holds it: without one, a lease that
// runs out loses it, as docs/guarantees.md says.
func (g *guarded) update(ctx context.Context, h *router.Handle) {
	update := g.nextUpdate()
	g.say(saidHolds, update)
	err := h.Run(ctx, func(ctx context.Context, v *router.View) error {
		return g.readModifyWrite(ctx, v.DB(), update, h.Check)
	})
	if err == nil {
		g.say(saidDone, update)
		err = h.Handoff(ctx)
	}
	if err == nil || errors.Is(err, coord.CodeLeaseStoreUnavailable) {
		g.say(saidAcked, update)
		return
	}
	g.say(saidRefused, update)
	_ = h.Abandon(ctx) // over already, mostly
}
