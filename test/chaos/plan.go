//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A fault is one thing that the nemesis does, as data: it begins at a time and is undone
// after another.
type fault struct {
	At      time.Duration `json:"at"`
	For     time.Duration `json:"for"`
	Kind    faultKind     `json:"kind"`
	Replica int           `json:"replica"` // which one, if the kind hits one
	Member  int           `json:"member"`  // the same, for etcd
}

// A faultKind says what happens. Its text is what people read.
type faultKind string

const (
	killReplica   faultKind = "SIGKILL to replica"
	stopReplica   faultKind = "SIGSTOP to replica"
	endReplica    faultKind = "SIGTERM to replica"
	killMember    faultKind = "SIGKILL to etcd member"
	stopMember    faultKind = "SIGSTOP to etcd member"
	stopMajority  faultKind = "SIGSTOP to the two etcd members besides"
	cutEtcd       faultKind = "replica is cut from etcd"
	deafToEtcd    faultKind = "replica hears nothing from etcd, which hears it"
	cutCopies     faultKind = "replica is cut from the copies"
	cutReplicas   faultKind = "replica is cut from the others"
	cutMember     faultKind = "etcd member is cut from the others"
	fillReplica   faultKind = "disk full on replica"
	fillCopies    faultKind = "disk full under the copies"
	slowCopies    faultKind = "the copies are slow"
	stalledCopies faultKind = "the copies are stalled"
)

// A dose is how likely a fault is, and how long it takes; 0 for as long as etcd members
// may be stopped.
type dose struct {
	kind        faultKind
	weight      int
	least, most time.Duration
}

var doses = []dose{
	{killReplica, 18, 500 * time.Millisecond, 8 * time.Second},
	{stopReplica, 16, time.Second, 3 * leaseTTL},
	{endReplica, 8, 2 * time.Second, 12 * time.Second},
	{killMember, 6, time.Second, 8 * time.Second},
	{stopMember, 8, 500 * time.Millisecond, 0},
	{stopMajority, 3, 500 * time.Millisecond, 0},
	{cutEtcd, 10, time.Second, 3 * leaseTTL},
	{deafToEtcd, 5, time.Second, 3 * leaseTTL},
	{cutCopies, 6, 2 * time.Second, 15 * time.Second},
	{cutReplicas, 5, 2 * time.Second, 10 * time.Second},
	{cutMember, 6, 2 * time.Second, 10 * time.Second},
	{fillReplica, 4, 3 * time.Second, 12 * time.Second},
	{fillCopies, 3, 3 * time.Second, 12 * time.Second},
	{slowCopies, 6, 3 * time.Second, 15 * time.Second},
	{stalledCopies, 4, time.Second, 6 * time.Second},
}

// hits says what a fault works on, so that no two that hit the same overlap.
func (f fault) hits() string {
	switch f.Kind {
	case killMember, stopMember, stopMajority, cutMember:
		return "etcd"
	case fillCopies, slowCopies, stalledCopies:
		return "copies"
	default:
		return fmt.Sprintf("replica %d", f.Replica)
	}
}

// label is the fault for people, without what it hits if that is a replica: history
// has a field for it.
func (f fault) label() string {
	switch f.hits() {
	case "etcd":
		return fmt.Sprintf("%s m%d", f.Kind, f.Member)
	case "copies":
		return string(f.Kind)
	default:
		return strings.Replace(string(f.Kind), " to replica", "", 1)
	}
}

const (
	firstFault  = 5 * time.Second
	minDuration = 20 * time.Second
)

// defaultStopEtcd is less than what is left of a lease when its next renewal is due. The
// leader of etcd that was stopped for longer revokes, when it goes on, what was renewed
// with its successor: see docs/guarantees.md.
const defaultStopEtcd = leaseTTL / 2

// plan makes the faults of a run from its seed, in the order in which they begin. All are undone
// before the end. No etcd member is stopped for longer than stopEtcd.
func plan(seed uint64, duration, stopEtcd time.Duration) []fault {
	random := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, d := range doses {
		total += d.weight
	}
	var faults []fault
	busy := make(map[string]time.Duration)
	for at := firstFault; at < duration; at += 2*time.Second + time.Duration(random.Int64N(int64(5*time.Second))) {
		n := random.IntN(total)
		var d dose
		for _, d = range doses {
			if n -= d.weight; n < 0 {
				break
			}
		}
		f := fault{At: at, Kind: d.kind, Replica: random.IntN(3), Member: random.IntN(3)}
		if d.most == 0 {
			d.most = stopEtcd
		}
		f.For = d.least + time.Duration(random.Int64N(int64(d.most-d.least)))
		if at < busy[f.hits()] || at+f.For > duration {
			continue
		}
		// Whatever it hits gets a moment of peace afterwards.
		busy[f.hits()] = at + f.For + 2*time.Second
		faults = append(faults, f)
	}
	return faults
}
