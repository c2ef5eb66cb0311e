//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/sim/history"
)

const (
	progressEvery = 10 * time.Second
	// servesWithin bounds how long a tenant may go unserved after the last fault: the
	// lease of whoever had it, etcd's election, and a restore, on a busy machine.
	servesWithin = time.Minute
	// readers read everything back at once.
	readers = 8
)

// inside is the run, in its namespaces.
func inside(ctx context.Context, text string) error {
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	if err := enter(); err != nil {
		return fmt.Errorf("this machine does not let a run have namespaces of its own: %w", err)
	}
	begin := time.Now()
	record := history.NewRecorder(func() time.Duration { return time.Since(begin) })
	f, err := startFleet(ctx, s, record)
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return fmt.Errorf("%w (logs are in %s)", err, s.Out)
	}
	fmt.Printf("%s: three etcd members, three replicas, %d tenants, %d clients, seed %d, faults for %v\n", s.Store, s.Tenants, s.Clients, s.Seed, s.Duration)
	r := &run{fleet: f, begin: begin, faults: plan(s.Seed, s.Duration, s.StopEtcd), nemesis: &nemesis{fleet: f, active: make(map[string]int)}}
	if err := r.play(ctx); err != nil {
		return err
	}
	return r.judge()
}

// A run is a fleet with what happens to it.
type run struct {
	*fleet
	begin    time.Time
	faults   []fault
	nemesis  *nemesis
	observer *observer
	clean    int // replicas that handed off everything at the end
}

// play lets clients and the nemesis work, ends the faults, and reads everything back.
func (r *run) play(ctx context.Context) (err error) {
	if r.observer, err = newObserver(r.fleet); err != nil {
		return err
	}
	defer r.observer.etcd.Close()
	watching, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	watchers.Go(func() { r.observer.watchEtcd(watching) })
	watchers.Go(func() { r.observer.probe(watching) })
	for _, n := range r.nodes {
		watchers.Go(func() { r.observer.listen(watching, n) })
	}
	watchers.Go(func() { r.progress(watching) })

	working, stopWorking := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stopWorking()
	for i := range r.setup.Clients {
		clients.Go(func() { newClient(r.fleet, i+1).run(working) })
	}
	r.nemesis.run(ctx, r.faults)
	stopWorking()
	clients.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.settle(ctx)
}

// settle wants each tenant to serve again, reads it, and ends the replicas.
func (r *run) settle(ctx context.Context) error {
	r.record.Record(history.Event{Kind: history.Healed, Within: servesWithin})
	end := time.Now().Add(servesWithin)
	r.forTenants(func(c *client, i int) {
		for time.Now().Before(end) && ctx.Err() == nil && !c.append(ctx, r.keys[i]) {
		}
	})
	r.forTenants(func(c *client, i int) { c.readBack(ctx, r.keys[i]) })
	clean, err := r.shutDown(ctx)
	r.clean = clean
	if err != nil {
		fmt.Println("  at the end:", err)
	}
	return errors.Join(ctx.Err(), r.observer.catchUp(ctx))
}

func (r *run) forTenants(do func(c *client, i int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for n := range readers {
		c := newClient(r.fleet, 1000+r.setup.Clients+n)
		all.Go(func() {
			for i := range next {
				do(c, i)
			}
		})
	}
	for i := range r.keys {
		next <- i
	}
	close(next)
	all.Wait()
}

// progress prints a line now and then.
func (r *run) progress(ctx context.Context) {
	for sleep(ctx, progressEvery) {
		s := history.Summarize(r.record.History())
		fmt.Printf("  %5s  %6d writes acknowledged, %5d refused, %5d unknown; %4d takeovers, %4d handoffs; %s\n",
			time.Since(r.begin).Round(time.Second), s.Acknowledged, s.Refused, s.Unknown, s.Takeovers, s.Handoffs, r.nemesis.doing())
	}
}

// A verdict is what a run leaves for programs.
type verdict struct {
	Command       string          `json:"command"`
	Store         string          `json:"store"`
	Seed          uint64          `json:"seed"`
	Good          bool            `json:"good"`
	Violations    []string        `json:"violations"`
	Complaints    []string        `json:"complaints"`
	Summary       history.Summary `json:"summary"`
	Faults        map[string]int  `json:"faults"`         // how often each kind
	NotDone       []string        `json:"not_done"`       // faults that could not be done or undone
	Unasked       map[string]int  `json:"unasked_exits"`  // of processes
	CleanExits    int             `json:"clean_exits"`    // of three replicas, at the end
	EtcdSilent    time.Duration   `json:"etcd_silent"`    // in nanoseconds: no member answered for longer than a second
	EtcdLongest   time.Duration   `json:"etcd_longest"`   // the longest of those times
	ReplicaEvents map[string]int  `json:"replica_events"` // how often replicas told of each kind
	Codes         map[string]int  `json:"codes"`          // why calls were not acknowledged
}
