package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
	"github.com/leaseholddb/leasehold/sim/history"
)

// A client makes one call after the other, on tenants and replicas of its choice.
type client struct {
	w    *world
	n    int
	rng  *rand.Rand
	made int

	unclear []attempt // appends that may be repeated

	acknowledged int
	calls        uint64
	ended        bool // its goroutine

	call *pending // guarded by world.mu
}

// An attempt is a value whose outcome the client does not know.
type attempt struct {
	key   coord.Key
	value string
}

// A pending call is one that has not returned.
type pending struct {
	proc  *process
	began history.Event
	lost  bool // with its process, and recorded as such
}

func (w *world) newClient(n int) *client {
	return &client{w: w, n: n, rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(n)+1))}
}

// work makes calls until the world has no more use for them.
func (c *client) work() {
	for {
		c.rest(time.Duration(c.rng.Int64N(int64(c.w.cfg.TTL / 4))))
		if c.w.isOver() {
			break
		}
		c.act()
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.ended = true
}

func (c *client) rest(d time.Duration) {
	c.w.clientOf.Store(goroutine(), c.n)
	c.w.park(&op{site: "client", detail: fmt.Sprintf("%03d", c.n), ready: c.w.now() + d})
}

// lose records that the process died on which the client had a call.
func (c *client) lose(p *process) {
	c.w.mu.Lock()
	call := c.call
	if call == nil || call.proc != p || call.lost {
		c.w.mu.Unlock()
		return
	}
	call.lost = true
	c.w.mu.Unlock()
	c.returned(call, history.Event{Outcome: history.Unknown, Replica: p.id, Code: "CRASHED"})
}

// acts are what a client does, with how often, in parts of a whole.
var acts = []struct {
	name  string
	share int
	do    func(c *client, h *router.Handle, p *process)
}{
	{"append", 24, (*client).append},
	{"append plainly", 8, (*client).appendPlainly},
	{"append in parts", 10, (*client).appendInParts},
	{"set", 10, (*client).set},
	{"read", 8, (*client).read},
	{"read plainly", 7, (*client).readPlainly},
	{"get", 7, (*client).get},
	{"snapshot", 13, (*client).snapshot},
	{"hand off", 7, (*client).handOff},
	{"move", 8, (*client).move},
	{"abandon", 2, (*client).abandon},
	{"linger", 2, (*client).linger},
	{"forget", 2, (*client).forget},
}

// usualActs draws how often clients do what in one history, in which they are busy with some
// acts and leave others alone.
func usualActs(rng *rand.Rand, busy, never []string) []int {
	usual := make([]int, len(acts))
	for i, a := range acts {
		usual[i] = a.share
	}
	drawn := shares(rng, usual)
	for i, a := range acts {
		for _, name := range busy {
			if a.name == name {
				drawn[i] += 10
			}
		}
		if slices.Contains(never, a.name) {
			drawn[i] = 0
		}
	}
	return drawn
}

// shares draws how often things happen in one history: some much more often than usual, some
// never, so that histories differ in kind.
func shares(rng *rand.Rand, usual []int) []int {
	drawn := make([]int, len(usual))
	for i, share := range usual {
		drawn[i] = share * []int{0, 1, 1, 1, 4}[rng.IntN(5)]
	}
	if slices.Max(drawn[:len(drawn)-1]) == 0 { // the last may be taken out
		return usual
	}
	return drawn
}

// draw picks an index by its share.
func draw(rng *rand.Rand, shares []int) int {
	total := 0
	for _, share := range shares {
		total += share
	}
	dice := rng.IntN(total)
	for i, share := range shares {
		if dice -= share; dice < 0 {
			return i
		}
	}
	return 0
}

// act makes one call on some tenant, at the replica that has it or at another one.
func (c *client) act() {
	key := c.w.keys[c.rng.IntN(len(c.w.keys))]
	if c.w.hot && c.rng.IntN(3) > 0 {
		key = c.w.keys[0]
	}
	p := c.choose(key)
	if p == nil {
		return
	}
	open := c.open
	if c.rng.IntN(10) == 0 {
		open = c.openPatiently
	}
	h, err := open(p, key)
	if err != nil {
		return
	}
	acts[draw(c.rng, c.w.shares)].do(c, h, p)
}

// invoke records the beginning of a call.
func (c *client) invoke(p *process, h *router.Handle, call history.Call, value string) *pending {
	if call == history.Append || call == history.Set {
		c.w.truth.writes(tenureOf(h, p), value)
	}
	c.calls++
	one := &pending{proc: p, began: history.Event{
		Kind: history.Invoke, Tenant: h.Key().String(), Client: c.n, Op: uint64(c.n)*1_000_000 + c.calls, Call: call, Value: value,
	}}
	c.w.record(c.source(), one.began)
	c.w.mu.Lock()
	c.call = one
	c.w.mu.Unlock()
	return one
}

// finish records the end of a call. What is acknowledged must have been provable.
func (c *client) finish(one *pending, h *router.Handle, err error, e history.Event) {
	c.w.mu.Lock()
	c.call = nil
	lost := one.lost
	c.w.mu.Unlock()
	if lost {
		return
	}
	e.Replica, e.Outcome, e.Code = one.proc.id, outcomeOf(err), string(coord.CodeOf(err))
	if e.Outcome == history.Unknown && e.Code == "" && h.Err() != nil {
		// Which error a call hears whose database is closed under it is a matter of chance.
		e.Code = string(coord.CodeHandleClosed)
	}
	call := one.began.Call
	switch {
	case e.Outcome == history.OK && e.Epoch == 0:
		e.Epoch = h.Epoch()
	case e.Outcome == history.Unknown && call == history.Append:
		c.unclear = append(c.unclear, attempt{h.Key(), one.began.Value})
	}
	if e.Outcome == history.OK {
		c.acknowledged++
		if slices.Contains([]history.Call{history.Append, history.Read, history.Set, history.Get}, call) {
			c.w.truth.holds(tenureOf(h, one.proc), history.ProvableTenure, fmt.Sprintf("acknowledged %s %s", call, one.began.Value))
		}
	}
	c.returned(one, e)
}

// returned records what e says of the end of a call.
func (c *client) returned(one *pending, e history.Event) {
	began := one.began
	e.Kind, e.Tenant, e.Client, e.Op, e.Call, e.Value = history.Return, began.Tenant, began.Client, began.Op, began.Call, began.Value
	c.w.record(c.source(), e)
}

// outcomeOf says what an error promises.
func outcomeOf(err error) history.Outcome {
	switch coord.CodeOf(err) {
	case coord.CodeFenced, coord.CodeDraining, coord.CodeLedgerBusy:
		return history.Failed
	}
	if err == nil {
		return history.OK
	}
	return history.Unknown
}

// event is a ledger event. Its actor is the value and its subject the writer's epoch, where
// later openings look for them.
func event(kind, value string, h *router.Handle) ledger.Event {
	return ledger.Event{Time: epochStart, Actor: value, Kind: kind, SubjectID: h.Epoch().String(), IdemKey: kind + value}
}

func (c *client) newValue() string {
	c.made++
	return fmt.Sprintf("c%d.%d", c.n, c.made)
}

// nextAppend repeats an append whose outcome is unknown, or begins another one.
func (c *client) nextAppend(h *router.Handle) string {
	for i, a := range c.unclear {
		if a.key == h.Key() {
			c.unclear = slices.Delete(c.unclear, i, i+1)
			return a.value
		}
	}
	return c.newValue()
}
