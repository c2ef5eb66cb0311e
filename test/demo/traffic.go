package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/test/flights"
)

const (
	tickEvery = 300 * time.Millisecond
)

// A traffic is one client for each tenant that appends on and on, and remembers what
// was acknowledged and how long it waited for that.
type traffic struct {
	d      *demo
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		acks    map[coord.Key][]ack
		slowest map[coord.Key]time.Duration // of the append that took longest in this act
		drained map[coord.Key]coord.Epoch   // the tenures that were handed off
		victims map[coord.Key]coord.Epoch   // the tenures that were killed
		killed  time.Time
		atRisk  time.Duration // before that, and younger than this, is what the victim had not copied
		total   int
		lost    int           // with the killed replica
		oldest  time.Duration // of those, before the kill
		overrun int           // with leases that ran out on a machine that was too busy to renew them
	}
}

// An ack is an append that was acknowledged.
type ack struct {
	id    string
	epoch coord.Epoch
	at    time.Time
}

func newTraffic(d *demo) *traffic {
	t := &traffic{d: d}
	t.mu.acks = make(map[coord.Key][]ack)
	t.beginAct()
	ctx, cancel := context.WithCancel(d.ctx)
	t.cancel = cancel
	for i, key := range d.keys {
		t.wg.Go(func() { t.client(ctx, key, time.Duration(i)*tickEvery/time.Duration(len(d.keys))) })
	}
	return t
}

// stop may be called more than once.
func (t *traffic) stop() {
	t.cancel()
	t.wg.Wait()
}

// client finishes the append that it is about when ctx ends: an answer that nobody
// waits for would be neither acknowledged nor refused.
func (t *traffic) client(ctx context.Context, key coord.Key, offset time.Duration) {
	wait := offset
	for i := 0; ; i++ {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		id := fmt.Sprintf("tick-%d", i)
		began := time.Now()
		epoch, err := t.d.append(key, flights.Event{Actor: "demo", Kind: "tick", SubjectID: "demo", Payload: []byte("{}"), IdemKey: id})
		if err != nil {
			t.d.board.say(fmt.Sprintf("  %s: %v", key, err))
			return
		}
		t.acknowledged(key, ack{id, epoch, time.Now()}, time.Since(began))
		wait = tickEvery
	}
}

func (t *traffic) acknowledged(key coord.Key, a ack, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.acks[key] = append(t.mu.acks[key], a)
	t.mu.slowest[key] = max(t.mu.slowest[key], took)
}

func (t *traffic) beginAct() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.slowest = make(map[coord.Key]time.Duration)
}

// handedOff notes the tenures that are about to be.
func (t *traffic) handedOff(tenures map[coord.Key]coord.Epoch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.drained = tenures
}

// crashed notes the tenures whose owner has just been killed, and how old the oldest of
// what it had not copied was.
func (t *traffic) crashed(tenures map[coord.Key]coord.Epoch, atRisk time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.killed, t.mu.victims, t.mu.atRisk = time.Now(), tenures, atRisk
}

func (t *traffic) killedAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.killed
}

// pauses says how long the clients of these tenants waited, and how long the others'.
func (t *traffic) pauses(moved map[coord.Key]coord.Epoch) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var theirs, others []time.Duration
	for key, took := range t.mu.slowest {
		if moved[key] > 0 {
			theirs = append(theirs, took)
		} else {
			others = append(others, took)
		}
	}
	return fmt.Sprintf("longest wait of a client for an acknowledgement: %s; of the tenants that stayed: %s", spread(theirs), spread(others))
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	return fmt.Sprintf("median %d ms, slowest %d ms", ms(all[len(all)/2]), ms(all[len(all)-1]))
}

// compare checks one ledger, which is at the given epoch now: every flight, in order;
// every tick once; and of those that were acknowledged none missing but for what the
// end of a tenure that was not handed off may lose.
func (t *traffic) compare(key coord.Key, now coord.Epoch) error {
	got, err := t.d.idemKeys(key)
	if err != nil {
		return err
	}
	for i, f := range t.d.groups[key] {
		if i >= len(got) || got[i] != f.Event.IdemKey {
			return fmt.Errorf("event %d is not %s", i+1, f.Event.IdemKey)
		}
	}
	there := make(map[string]bool)
	for _, id := range got {
		if there[id] {
			return fmt.Errorf("%s stands twice", id)
		}
		there[id] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.mu.acks[key] {
		t.mu.total++
		if there[a.id] {
			continue
		}
		before := t.mu.killed.Sub(a.at)
		switch {
		case a.epoch == now || a.epoch == t.mu.drained[key]:
			return fmt.Errorf("%s was acknowledged at epoch %d, and is missing", a.id, uint64(a.epoch))
		case a.epoch != t.mu.victims[key]:
			t.mu.overrun++
		case before > t.mu.atRisk:
			return fmt.Errorf("%s was acknowledged %v before the kill, and is missing; nothing of more than %v was without a copy", a.id, before, t.mu.atRisk)
		default:
			t.mu.lost, t.mu.oldest = t.mu.lost+1, max(t.mu.oldest, before)
		}
	}
	return nil
}

func (t *traffic) verdict() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "every flight is there, in order, once; so is every one of %d acknowledged appends but %d", t.mu.total, t.mu.lost+t.mu.overrun)
	if t.mu.lost > 0 {
		fmt.Fprintf(&b, ":\n  %d of the killed replica's tenants, acknowledged in its last %.1f s; copies are made every %v", t.mu.lost, t.mu.oldest.Seconds(), snapshotEvery)
	}
	if t.mu.overrun > 0 {
		fmt.Fprintf(&b, "\n  %d of tenants whose leases ran out because this machine was too busy to renew them", t.mu.overrun)
	}
	return b.String()
}
