package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
	"github.com/leaseholddb/leasehold/sim/history"
)

// What only somebody who sees everything at once can judge, beside the invariants of
// package history.
const (
	behindTheFence history.Invariant = "no work begins, and no commit, behind the fence"
	openGate       history.Invariant = "no gate is open without a lease"
	neverChanged   history.Invariant = "nothing in the copy store is ever overwritten"
	wholeCopies    history.Invariant = "a manifest means that its image is there"
	oneLine        history.Invariant = "a tenant's ledger is what its predecessors left, and nothing that they did not have"
	sweptAway      history.Invariant = "what landed after a forget is gone when the tenant has been opened"
	closedTenant   history.Invariant = "a tenant whose copies are newer than the grant, or which is marked so, is not opened"
	callsReturn    history.Invariant = "every call returns within a bounded time once the faults have ended"
	nothingLost    history.Invariant = "a shutdown without an error loses nothing"
)

// The truth is what happened, as nobody in the fleet can know it. It is safe for concurrent
// use.
type truth struct {
	w  *world
	mu struct {
		sync.Mutex
		violations []history.Violation
		tenants    map[coord.Key]*tenantTruth
	}
}

type tenantTruth struct {
	name     string
	granted  map[coord.Epoch]time.Duration // the first grant of each epoch
	newest   coord.Epoch                   // that was granted
	opened   map[coord.Epoch]string        // by whom
	last     *contents                     // of the newest opening that could be read
	invoked  map[entry]time.Duration       // when each value was first written at each epoch
	renewals map[coord.Tenure]int
	floor    coord.Epoch
	damaged  bool
	listed   map[coord.Tenure]bool
	refuses  map[string]bool       // processes that saw copies which are newer than their grant
	excused  map[coord.Tenure]bool // stood when the lease store was rolled back
}

// An entry is a value with the epoch of the tenure that wrote it.
type entry struct {
	value string
	epoch coord.Epoch
}

// contents are what a tenure started from.
type contents struct {
	epoch   coord.Epoch
	entries []entry
}

func newTruth(w *world) *truth {
	t := &truth{w: w}
	t.mu.tenants = make(map[coord.Key]*tenantTruth)
	for _, key := range w.keys {
		t.mu.tenants[key] = &tenantTruth{
			name: key.String(), granted: make(map[coord.Epoch]time.Duration), opened: make(map[coord.Epoch]string),
			invoked: make(map[entry]time.Duration), renewals: make(map[coord.Tenure]int), listed: make(map[coord.Tenure]bool), refuses: make(map[string]bool), excused: make(map[coord.Tenure]bool),
		}
	}
	return t
}

func (t *truth) complain(invariant history.Invariant, key coord.Key, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complainLocked(invariant, key, format, args...)
}

func (t *truth) complainLocked(invariant history.Invariant, key coord.Key, format string, args ...any) {
	v := history.Violation{Invariant: invariant, Tenant: key.String(), At: t.w.now(), Text: fmt.Sprintf(format, args...)}
	t.mu.violations = append(t.mu.violations, v)
	t.w.logf("VIOLATION %s", v)
}

func (t *truth) violations() []history.Violation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.mu.violations)
}

// granted is told of every grant.
func (t *truth) granted(key coord.Key, owner string, epoch coord.Epoch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.tenants[key]
	if epoch <= s.newest { // again, by a store that forgot what came after
		maps.DeleteFunc(s.granted, func(e coord.Epoch, _ time.Duration) bool { return e >= epoch })
	}
	s.newest = max(s.newest, epoch)
	s.granted[epoch] = t.w.now()
	t.w.record("", history.Event{Kind: history.Grant, Tenant: s.name, Replica: owner, Epoch: epoch})
}

// rollsBack is told before the lease store forgets. What stood then is not over because of
// that; nobody can be granted it before its fence has passed.
func (t *truth) rollsBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.w.leases.state.keys {
		t.excuseLocked(key)
	}
}

// isRaised is told before an operator raises a tenant's epoch. The number of what stands then
// is an old one from that moment on, and its owner hears that it has lost the lease with its
// next renewal; until its session ends nobody else is granted the tenant.
func (t *truth) isRaised(key coord.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excuseLocked(key)
}

func (t *truth) excuseLocked(key coord.Key) {
	r := t.w.leases.state.keys[key]
	t.mu.tenants[key].excused[coord.Tenure{Key: key, Owner: r.owner, Epoch: r.epoch}] = true
}

// grantsThatCount leaves out the grants that a store forgot and made again, as long as
// nobody served at them.
func (t *truth) grantsThatCount(h history.History) history.History {
	last := make(map[string][]int) // the grants that count, by tenant
	dropped := make(map[int]bool)
	served := func(i int) bool {
		key, err := coord.ParseKey(h[i].Tenant)
		must(err)
		return t.mu.tenants[key].opened[h[i].Epoch] == h[i].Replica
	}
	for i, e := range h {
		if e.Kind != history.Grant {
			continue
		}
		count := last[e.Tenant]
		var forgotten []int
		for _, j := range count {
			if h[j].Epoch >= e.Epoch {
				forgotten = append(forgotten, j)
			}
		}
		again := func(j int) bool { return h[j].Epoch == e.Epoch && h[j].Replica == e.Replica }
		if slices.ContainsFunc(forgotten, again) || slices.ContainsFunc(forgotten, served) && !served(i) {
			dropped[i] = true
			// One that was given back before anything was served at it has not ended what its
			// owner was granted again.
			for k := range i {
				back := h[k].Kind == history.End && h[k].Tenant == e.Tenant && h[k].Epoch == e.Epoch && !h[k].Flushed
				dropped[k] = dropped[k] || back && served(i) && !acknowledged(h[:k], e.Tenant, e.Epoch)
			}
			continue
		}
		if !slices.ContainsFunc(forgotten, served) {
			for _, j := range forgotten {
				dropped[j] = true
				for k := j; k < i; k++ {
					dropped[k] = dropped[k] || h[k].Kind == history.End && h[k].Tenant == e.Tenant && h[k].Epoch == h[j].Epoch
				}
			}
			count = count[:len(count)-len(forgotten)]
		}
		last[e.Tenant] = append(count, i)
	}
	var kept history.History
	for i, e := range h {
		if !dropped[i] {
			kept = append(kept, e)
		}
	}
	return kept
}

// acknowledged reports whether anything was acknowledged at the epoch.
func acknowledged(h history.History, tenant string, epoch coord.Epoch) bool {
	return slices.ContainsFunc(h, func(e history.Event) bool {
		return e.Kind == history.Return && e.Tenant == tenant && e.Epoch == epoch && e.Outcome == history.OK
	})
}

func (t *truth) renewed(tenure coord.Tenure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.tenants[tenure.Key].renewals[tenure]++
}

func (t *truth) renewals(tenure coord.Tenure) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.tenants[tenure.Key].renewals[tenure]
}

func (t *truth) forgotten(key coord.Key, floor coord.Epoch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.tenants[key].floor = max(t.mu.tenants[key].floor, floor)
}

// created is told of every object before it is made.
func (t *truth) created(s *copyServer, name string, body []byte) {
	if before, there := s.objects[name]; there && !bytes.Equal(before, body) {
		t.complain(neverChanged, keyOf(name), "%s was", name)
	}
	image, ok := strings.CutSuffix(name, ".json")
	if !ok || !strings.Contains(name, "/snap-") || s.made[image+".db"] {
		return
	}
	t.complain(wholeCopies, keyOf(name), "%s was written before its image", name)
}

// keyOf returns the tenant that an object is of.
func keyOf(name string) coord.Key {
	parts := strings.SplitN(name, "/", 3)
	key, err := coord.NewKey(parts[0], parts[1])
	must(err)
	return key
}

func (t *truth) damaged(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.tenants[keyOf(name)].damaged = true
}

func (t *truth) isDamaged(key coord.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.tenants[key].damaged
}

func (t *truth) raised(key coord.Key, above coord.Epoch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.tenants[key]
	above = max(above, s.newest)
	if above == 0 {
		return
	}
	t.w.leases.raise(key, above)
	s.newest = above
	t.w.record("", history.Event{Kind: history.Raise, Tenant: s.name, Epoch: above})
}

// observed is told of every event of a router.
func (t *truth) observed(p *process, e router.Event) {
	if e.Kind == router.EventReleased && e.Flushed {
		t.w.record(p.id, history.Event{Kind: history.End, Tenant: e.Key.String(), Epoch: e.Epoch, Flushed: true, Text: "handed off"})
	}
}

// holds complains if a tenure does not stand at this moment, in the eyes of the lease store.
func (t *truth) holds(tenure coord.Tenure, invariant history.Invariant, what string) {
	t.mu.Lock()
	excused := t.mu.tenants[tenure.Key].excused[tenure]
	t.mu.Unlock()
	if !excused && !t.w.leases.holds(tenure) {
		t.complain(invariant, tenure.Key, "%s %s at epoch %d, which was over", tenure.Owner, what, tenure.Epoch)
	}
}
