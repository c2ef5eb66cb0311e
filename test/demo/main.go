// Command demo shows the main job on this machine, in under a minute: three replicas
// on one etcd, real flight records appended through all of them, and clients that go
// on appending to every tenant while one replica is drained and another one killed.
// A table shows who owns what at which epoch; at the end every ledger is compared with
// what was acknowledged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/test/flights"
)

const (
	leaseTTL      = 5 * time.Second
	snapshotEvery = 2 * time.Second
	workers       = 8
	settle        = 3 * time.Second // how long things are watched after each act
	limit         = 5 * time.Minute // a demonstration that takes longer has failed
)

func main() {
	binary := flag.String("replica", "bin/replica", "the replica binary")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string) (err error) {
	dir, err := os.MkdirTemp("", "leasehold-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	etcd, err := embedetcd.Start(ctx, embedetcd.Config{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	d, err := newDemo(ctx, binary, dir, etcd.Endpoints())
	if err != nil {
		return err
	}
	defer d.killAll()
	for _, name := range []string{"a", "b", "c"} {
		if _, err := d.start(name); err != nil {
			return err
		}
	}
	return d.play()
}

type demo struct {
	ctx     context.Context
	binary  string
	dir     string
	etcd    []string
	keys    []coord.Key
	groups  map[coord.Key][]flights.Flight // by tenant, in the order of the records
	traffic *traffic
	board   *board

	mu struct {
		sync.Mutex
		replicas []*replica // that run
		turn     int
	}
}

func newDemo(ctx context.Context, binary, dir string, etcd []string) (*demo, error) {
	all, err := flights.Load()
	if err != nil {
		return nil, err
	}
	d := &demo{ctx: ctx, binary: binary, dir: dir, etcd: etcd, groups: make(map[coord.Key][]flights.Flight)}
	for _, f := range all {
		if d.groups[f.Key] == nil {
			d.keys = append(d.keys, f.Key)
		}
		d.groups[f.Key] = append(d.groups[f.Key], f)
	}
	return d, nil
}

// start starts a replica, a new one or the next incarnation of one that ended.
func (d *demo) start(name string) (*replica, error) {
	r, err := start(d.binary, name,
		"--state-dir", filepath.Join(d.dir, name), "--copies", filepath.Join(d.dir, "copies"), "--etcd", strings.Join(d.etcd, ","),
		"--lease-ttl", leaseTTL.String(), "--snapshot-every", snapshotEvery.String())
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.replicas = append(d.mu.replicas, r)
	return r, nil
}

// any returns the replicas in turn, as a balancer before them would.
func (d *demo) any() *replica {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.turn++
	return d.mu.replicas[d.mu.turn%len(d.mu.replicas)]
}

// withdraw returns the running replica of that name, and takes it out of the turns.
func (d *demo) withdraw(name string) *replica {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range d.mu.replicas {
		if r.name == name {
			d.mu.replicas = append(d.mu.replicas[:i:i], d.mu.replicas[i+1:]...)
			return r
		}
	}
	return nil
}

func (d *demo) killAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.mu.replicas {
		r.kill()
	}
}

func (d *demo) play() error {
	began := time.Now()
	if err := d.act("append the flights of every airport through three replicas", d.appendFlights); err != nil {
		return err
	}
	d.traffic, d.board = newTraffic(d), newBoard(d)
	defer d.board.stop()
	defer d.traffic.stop()
	for _, step := range []struct {
		title string
		do    func() error
	}{
		{fmt.Sprintf("a client of each airport appends on, every %v", tickEvery), d.watch},
		{"drain b (SIGTERM): it hands its tenants off and exits", d.drain},
		{"b is back, as another replica; kill a (SIGKILL)", d.crash},
	} {
		if err := d.act(step.title, step.do); err != nil {
			return err
		}
	}
	d.traffic.stop()
	d.board.stop()
	if err := d.act("read every ledger and compare it with what was acknowledged", d.verify); err != nil {
		return err
	}
	fmt.Printf("\nDone in %.0f s.\n", time.Since(began).Seconds())
	return nil
}

func (d *demo) act(title string, do func() error) error {
	d.board.say("\n— " + title)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	return nil
}

// each calls f for every tenant, several at a time.
func (d *demo) each(f func(key coord.Key) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []error
	lanes := make(chan struct{}, workers)
	for _, key := range d.keys {
		lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-lanes }()
			if err := f(key); err != nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, fmt.Errorf("%s: %w", key, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(all...)
}

func (d *demo) appendFlights() error {
	began := time.Now()
	n := 0
	for _, group := range d.groups {
		n += len(group)
	}
	err := d.each(func(key coord.Key) error {
		for _, f := range d.groups[key] {
			if _, err := d.append(key, f.Event); err != nil {
				return err
			}
		}
		return nil
	})
	d.board.say(fmt.Sprintf("  %d flights of %d airports in %.1f s", n, len(d.keys), time.Since(began).Seconds()))
	return err
}

// watch lets things go on for a while.
func (d *demo) watch() error {
	select {
	case <-time.After(settle):
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

func (d *demo) drain() error {
	owned, err := d.ownedBy("b")
	if err != nil {
		return err
	}
	d.traffic.beginAct()
	d.traffic.handedOff(owned)
	b := d.withdraw("b")
	asked := time.Now()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := b.wait(d.ctx); err != nil {
		return fmt.Errorf("b: %w", err)
	}
	drained := time.Since(asked)
	if err := d.watch(); err != nil {
		return err
	}
	d.board.say(fmt.Sprintf("  %d tenants handed off, exit code 0 after %.1f s", len(owned), drained.Seconds()))
	d.board.say("  " + d.traffic.pauses(owned))
	return nil
}

func (d *demo) crash() error {
	if _, err := d.start("b"); err != nil {
		return err
	}
	if err := d.watch(); err != nil {
		return err
	}
	owned, err := d.ownedBy("a")
	if err != nil {
		return err
	}
	d.traffic.beginAct()
	a := d.withdraw("a")
	asked := time.Now()
	uncopied, err := a.uncopied(d.ctx)
	if err != nil {
		return err
	}
	a.kill()
	d.traffic.crashed(owned, uncopied+time.Since(asked))
	for time.Since(d.traffic.killedAt()) < leaseTTL+2*settle {
		if err := d.watch(); err != nil {
			return err
		}
	}
	d.board.say(fmt.Sprintf("  %d tenants lost their owner; leases last %v", len(owned), leaseTTL))
	d.board.say("  " + d.traffic.pauses(owned))
	return nil
}

func (d *demo) verify() error {
	held, err := d.holders()
	if err != nil {
		return err
	}
	if err := d.each(func(key coord.Key) error { return d.traffic.compare(key, held[key].epoch) }); err != nil {
		return err
	}
	d.board.say("  " + d.traffic.verdict())
	return nil
}
