package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

const (
	takeoverTenants = 5000
	takeoverTTL     = 5 * time.Second
	bystanders      = 200
)

// takeover lets a replica with 5,000 tenants die and measures until the last of them
// is granted to one who waited, while another replica goes on renewing its own.
func (l *leaseBed) takeover(b *bench) error {
	dying, err := l.open()
	if err != nil {
		return err
	}
	waiting, err := l.open()
	if err != nil {
		return errors.Join(err, dying.Close())
	}
	defer waiting.Close()
	grants, err := l.acquireMany(dying, takeoverTenants, takeoverTTL)
	if err != nil {
		return errors.Join(err, dying.Close())
	}
	renewing, stop := context.WithCancel(l.ctx)
	defer stop()
	type result struct {
		slowest time.Duration
		err     error
	}
	stood := make(chan result, 1)
	started := make(chan struct{})
	go func() {
		slowest, err := l.renewBystanders(renewing, started)
		stood <- result{slowest, err}
	}()
	<-started

	granted := make(chan error, takeoverTenants)
	for _, g := range grants {
		go func() { granted <- takeWhenFree(l.ctx, waiting, g.Key) }()
	}
	if _, err := dying.Renew(l.ctx, grants[0].Tenure, takeoverTTL); err != nil {
		return fmt.Errorf("the replica lost its tenants before it died: %w", err)
	}
	died := time.Now()
	err = dying.Close() // releases nothing
	for range takeoverTenants {
		err = errors.Join(err, <-granted)
	}
	took := time.Since(died)
	stop()
	others := <-stood
	b.add(row{
		Name: "lease: a replica with 5,000 tenants dies, TTL 5 s: last takeover", Value: took.Seconds(), Limit: (takeoverTTL + 5*time.Second).Seconds(),
		Better: lower, Unit: "s", Ours: "after the replica's last renewal", Reference: "none",
	})
	b.add(row{
		Name: "lease: renewing 200 tenants of another replica meanwhile, slowest", Value: others.slowest.Seconds(), Limit: (takeoverTTL * 2 / 3).Seconds(),
		Better: lower, Unit: "s", Ours: "all at once, every third of the TTL", Reference: "none",
	})
	return errors.Join(err, others.err)
}

func takeWhenFree(ctx context.Context, s *etcdlease.Store, key coord.Key) error {
	if err := s.WaitReleased(ctx, key); err != nil {
		return err
	}
	_, err := s.Acquire(ctx, key, "heir", leaseTTL)
	return err
}

func (l *leaseBed) acquireMany(s *etcdlease.Store, n int, ttl time.Duration) ([]coord.Grant, error) {
	var mu sync.Mutex
	var grants []coord.Grant
	// What was acquired first must not lapse before the last is.
	renewing, stop := context.WithCancel(l.ctx)
	var renewals sync.WaitGroup
	defer func() { stop(); renewals.Wait() }()
	err := together(n, func() error {
		g, err := s.Acquire(l.ctx, l.key(), "bench", ttl)
		if err != nil {
			return err
		}
		mu.Lock()
		grants = append(grants, g)
		mu.Unlock()
		renewals.Go(func() { renewEvery(renewing, s, g, ttl/3) })
		return nil
	})
	return grants, err
}

func renewEvery(ctx context.Context, s *etcdlease.Store, g coord.Grant, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = s.Renew(ctx, g.Tenure, g.TTL)
		case <-ctx.Done():
			return
		}
	}
}

// renewBystanders keeps another replica's tenants until ctx ends or a renewal fails, and
// returns how long the slowest round of renewals took.
func (l *leaseBed) renewBystanders(ctx context.Context, started chan<- struct{}) (slowest time.Duration, err error) {
	s, err := l.open()
	if err != nil {
		close(started)
		return 0, err
	}
	defer s.Close()
	grants, err := l.acquireMany(s, bystanders, takeoverTTL)
	close(started)
	for err == nil && ctx.Err() == nil {
		began := time.Now()
		renewed := make(chan error, len(grants))
		for _, g := range grants {
			go func() {
				_, err := s.Renew(l.ctx, g.Tenure, takeoverTTL)
				renewed <- err
			}()
		}
		for range grants {
			err = errors.Join(err, <-renewed)
		}
		slowest = max(slowest, time.Since(began))
		select {
		case <-time.After(takeoverTTL / 3):
		case <-ctx.Done():
		}
	}
	return slowest, err
}
