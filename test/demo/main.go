// Command demo shows the main job on this machine: two replicas on one etcd, real
// flight records appended through both, every tenant of one replica handed over
// while appends go on, the other replica killed, and every event still there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/test/flights"
)

const (
	leaseTTL      = 3 * time.Second
	snapshotEvery = 500 * time.Millisecond
	workers       = 8
	limit         = 2 * time.Minute // a demonstration that takes longer has failed
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
	etcd, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir + "/etcd"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	all, err := flights.Load()
	if err != nil {
		return err
	}
	d := &demo{ctx: ctx, groups: make(map[coord.Key][]flights.Flight)}
	for _, f := range all {
		if d.groups[f.Key] == nil {
			d.keys = append(d.keys, f.Key)
		}
		d.groups[f.Key] = append(d.groups[f.Key], f)
	}
	defer d.stopAll()
	for _, name := range []string{"a", "b"} {
		r, err := start(binary, name,
			"--state-dir", dir+"/"+name, "--copies", dir+"/copies", "--etcd", strings.Join(etcd.Endpoints(), ","),
			"--lease-ttl", leaseTTL.String(), "--snapshot-every", snapshotEvery.String())
		if err != nil {
			return err
		}
		d.replicas = append(d.replicas, r)
	}
	return d.play()
}

type demo struct {
	ctx      context.Context
	replicas []*replica
	groups   map[coord.Key][]flights.Flight // by tenant, in the order of the records
	keys     []coord.Key
}

func (d *demo) stopAll() {
	for _, r := range d.replicas {
		r.kill()
	}
}

func (d *demo) play() error {
	a, b := d.replicas[0], d.replicas[1]
	for _, act := range []struct {
		title string
		do    func() error
	}{
		{"append the flights of every airport through both replicas", func() error { return d.appendFlights(a, b) }},
		{"hand every tenant of a over, while a client appends through b", func() error { return d.handOver(a, b) }},
		{"move them back, wait for copies, kill a (SIGKILL), and append through b", func() error { return d.crash(a, b) }},
		{"read every ledger and compare it with the records", func() error { return d.verify(b) }},
		{"stop b (SIGTERM): it hands its tenants off", func() error { return d.stop(b) }},
	} {
		fmt.Printf("\n— %s\n", act.title)
		began := time.Now()
		if err := act.do(); err != nil {
			return fmt.Errorf("%s: %w", act.title, err)
		}
		fmt.Printf("  %.1f s\n", time.Since(began).Seconds())
	}
	fmt.Println("\nEvery acknowledged event is there, once, in order.")
	return nil
}

// each calls f for every tenant, several at a time, with a counter on the terminal.
func (d *demo) each(what string, keys []coord.Key, f func(key coord.Key) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []error
	done := 0
	lanes := make(chan struct{}, workers)
	for _, key := range keys {
		lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-lanes }()
			err := f(key)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all = append(all, fmt.Errorf("%s: %w", key, err))
			}
			done++
			if done%25 == 0 || done == len(keys) {
				fmt.Printf("  %s: %d of %d tenants\n", what, done, len(keys))
			}
		})
	}
	wg.Wait()
	return errors.Join(all...)
}

func (d *demo) appendFlights(through ...*replica) error {
	err := d.each("appended", d.keys, func(key coord.Key) error {
		for i, f := range d.groups[key] {
			if _, err := d.append(key, f.Event, through[(int(key.Tenant()[33])+i)%len(through)]); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, d.table())
}

func (d *demo) handOver(from, to *replica) error {
	owned, err := d.ownedBy(from)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var pauses []time.Duration
	err = d.each("moved", owned, func(key coord.Key) error {
		began := time.Now()
		if err := from.post(d.ctx, key, "handoff", nil, nil); err != nil {
			return err
		}
		a, err := d.append(key, flights.Event{Actor: "demo", Kind: "moved", SubjectID: "demo", Payload: []byte("{}"), IdemKey: "moved"}, to)
		if err == nil && a.Epoch < 2 {
			err = fmt.Errorf("still at epoch %d", a.Epoch)
		}
		mu.Lock()
		defer mu.Unlock()
		pauses = append(pauses, time.Since(began))
		return err
	})
	if len(pauses) > 0 {
		slices.Sort(pauses)
		fmt.Printf("  from the request until the new owner acknowledged: median %v, slowest %v\n",
			pauses[len(pauses)/2].Round(time.Millisecond), pauses[len(pauses)-1].Round(time.Millisecond))
	}
	return errors.Join(err, d.table())
}

func (d *demo) crash(victim, heir *replica) error {
	owned, err := d.ownedBy(heir)
	if err != nil {
		return err
	}
	if err := d.each("moved back", owned[:len(owned)/2], func(key coord.Key) error {
		if err := heir.post(d.ctx, key, "handoff", nil, nil); err != nil {
			return err
		}
		if err := victim.post(d.ctx, key, "open", nil, nil); err != nil {
			return err
		}
		return victim.post(d.ctx, key, "snapshot", nil, nil)
	}); err != nil {
		return err
	}
	victim.kill()
	killed := time.Now()
	var mu sync.Mutex
	var slowest time.Duration
	err = d.each("served by b", owned, func(key coord.Key) error {
		_, err := d.append(key, flights.Event{Actor: "demo", Kind: "survived", SubjectID: "demo", Payload: []byte("{}"), IdemKey: "survived"}, heir)
		mu.Lock()
		defer mu.Unlock()
		slowest = max(slowest, time.Since(killed))
		return err
	})
	fmt.Printf("  the last tenant was served again %v after the kill; the TTL is %v\n", slowest.Round(time.Millisecond), leaseTTL)
	return errors.Join(err, d.table(heir))
}

func (d *demo) verify(r *replica) error {
	return d.each("verified", d.keys, func(key coord.Key) error {
		got, err := r.idemKeys(d.ctx, key)
		if err != nil {
			return err
		}
		for i, f := range d.groups[key] {
			if i >= len(got) || got[i] != f.Event.IdemKey {
				return fmt.Errorf("event %d is not %s", i+1, f.Event.IdemKey)
			}
		}
		return nil
	})
}

func (d *demo) stop(r *replica) error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return r.wait(d.ctx)
}
