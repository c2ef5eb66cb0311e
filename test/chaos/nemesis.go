//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/sim/history"
)

// A nemesis carries out a plan.
type nemesis struct {
	*fleet
	mu     sync.Mutex
	active map[string]int
	failed []error // what it could not do
}

// run returns when every fault was undone: at the end of the plan, or soon after ctx ends.
func (n *nemesis) run(ctx context.Context, faults []fault) {
	var all sync.WaitGroup
	begin := time.Now()
	for _, f := range faults {
		if !sleep(ctx, time.Until(begin.Add(f.At))) {
			break
		}
		all.Go(func() { n.carryOut(ctx, f) })
	}
	all.Wait()
}

func (n *nemesis) carryOut(ctx context.Context, f fault) {
	event := history.Event{Kind: history.Fault, Text: f.label()}
	if f.hits() != "etcd" && f.hits() != "copies" {
		event.Replica = n.nodes[f.Replica].name
	}
	name := strings.TrimSpace(event.Text + " " + event.Replica)
	n.record.Record(event)
	n.note(name, 1, nil)
	until, cancel := context.WithTimeout(ctx, f.For)
	defer cancel()
	err := n.begin(until, f)
	<-until.Done()
	err = errors.Join(err, n.undo(f))
	event.Kind = history.Heal
	n.record.Record(event)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	n.note(name, -1, err)
}

func (n *nemesis) note(name string, by int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.active[name] += by; n.active[name] == 0 {
		delete(n.active, name)
	}
	if err != nil {
		n.failed = append(n.failed, err)
	}
}

// doing is what the nemesis does now, for people.
func (n *nemesis) doing() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.active) == 0 {
		return "no fault"
	}
	return strings.Join(slices.Sorted(maps.Keys(n.active)), ", ")
}

// begin does what the fault says. A fault that takes work while it lasts returns when until
// ends.
func (n *nemesis) begin(until context.Context, f fault) error {
	replica, member := n.nodes[f.Replica], n.members[f.Member]
	switch f.Kind {
	case killReplica:
		replica.process.down(syscall.SIGKILL)
	case endReplica:
		replica.process.down(syscall.SIGTERM)
	case stopReplica:
		replica.process.signal(syscall.SIGSTOP)
	case killMember:
		member.process.down(syscall.SIGKILL)
	case stopMember:
		member.process.signal(syscall.SIGSTOP)
	case stopMajority:
		for _, m := range n.besides(f.Member) {
			m.process.signal(syscall.SIGSTOP)
		}
	case cutCopies:
		return n.store.cut(replica)
	case fillReplica:
		return fill(replica.state)
	case fillCopies:
		return fill(n.store.dir())
	case slowCopies:
		return n.slow(until)
	case stalledCopies:
		return n.store.stall()
	case cutEtcd, deafToEtcd, cutReplicas, cutMember:
		return forLinks(n.links(f), n.network.cut)
	}
	return nil
}

func (n *nemesis) undo(f fault) error {
	replica, member := n.nodes[f.Replica], n.members[f.Member]
	switch f.Kind {
	case killReplica, endReplica:
		replica.process.up()
	case stopReplica:
		replica.process.signal(syscall.SIGCONT)
	case killMember:
		member.process.up()
	case stopMember:
		member.process.signal(syscall.SIGCONT)
	case stopMajority:
		for _, m := range n.besides(f.Member) {
			m.process.signal(syscall.SIGCONT)
		}
	case cutCopies:
		return n.store.mend(replica)
	case fillReplica:
		return empty(replica.state)
	case fillCopies:
		return empty(n.store.dir())
	case stalledCopies:
		return n.store.resume()
	case cutEtcd, deafToEtcd, cutReplicas, cutMember:
		return forLinks(n.links(f), n.network.mend)
	}
	return nil
}

func (n *nemesis) besides(i int) []*member {
	return []*member{n.members[(i+1)%3], n.members[(i+2)%3]}
}

// slow lets the store work a fifth of the time.
func (n *nemesis) slow(until context.Context) error {
	for until.Err() == nil {
		if err := n.store.stall(); err != nil {
			return err
		}
		sleep(until, 400*time.Millisecond)
		if err := n.store.resume(); err != nil {
			return err
		}
		sleep(until, 100*time.Millisecond)
	}
	return nil
}

// A link is one direction between two hosts.
type link struct{ from, to *host }

// links are those that a fault of the network cuts.
func (n *nemesis) links(f fault) []link {
	var all []link
	both := func(a, b *host) { all = append(all, link{a, b}, link{b, a}) }
	replica := n.nodes[f.Replica].host
	switch f.Kind {
	case cutEtcd:
		for _, m := range n.members {
			both(replica, m.host)
		}
	case deafToEtcd:
		for _, m := range n.members {
			all = append(all, link{m.host, replica})
		}
	case cutReplicas:
		for i := range n.nodes {
			if i != f.Replica {
				both(replica, n.nodes[i].host)
			}
		}
	case cutMember:
		for _, m := range n.besides(f.Member) {
			both(n.members[f.Member].host, m.host)
		}
	}
	return all
}

func forLinks(links []link, do func(from, to *host) error) error {
	var all []error
	for _, l := range links {
		all = append(all, do(l.from, l.to))
	}
	return errors.Join(all...)
}
