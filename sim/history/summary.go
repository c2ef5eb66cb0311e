package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// A Summary counts what a history holds.
type Summary struct {
	Duration      time.Duration `json:"duration"` // from the first event to the last, in nanoseconds
	Events        int           `json:"events"`
	Tenants       int           `json:"tenants"`
	Faults        int           `json:"faults"`
	Grants        int           `json:"grants"`
	Takeovers     int           `json:"takeovers"` // grants after a tenure that did not flush
	Handoffs      int           `json:"handoffs"`  // tenures that ended with everything in a copy
	Acknowledged  int           `json:"acknowledged"`
	Refused       int           `json:"refused"` // calls that were certain to have no effect
	Unknown       int           `json:"unknown"` // calls of which nobody knows
	Reads         int           `json:"reads"`
	Lost          int           `json:"lost"` // acknowledged appends that the last read of their tenant lacks
	LongestOutage Outage        `json:"longest_outage"`
}

// An Outage is a time in which a tenant's clients asked and nobody answered them.
type Outage struct {
	Tenant string        `json:"tenant"`
	From   time.Duration `json:"from"`
	To     time.Duration `json:"to"`
}

// Length is how long it was.
func (o Outage) Length() time.Duration { return o.To - o.From }

// Summarize counts. Acknowledged are writes; what a forget removed counts as neither
// kept nor lost.
func Summarize(h History) Summary {
	s := Summary{Events: len(h)}
	if len(h) == 0 {
		return s
	}
	end := h[len(h)-1].At
	s.Duration = end - h[0].At
	for _, e := range h {
		if e.Kind == Fault {
			s.Faults++
		}
	}
	for _, t := range byTenant(h) {
		s.Tenants++
		s.Grants += len(t.grants)
		t.countTenures(&s)
		t.countCalls(&s)
		s.Lost += t.lost()
		for _, o := range t.outages(end) {
			if o.Length() > s.LongestOutage.Length() {
				s.LongestOutage = o
			}
		}
	}
	return s
}

func (t *tenantHistory) countTenures(s *Summary) {
	flushed := t.flushed()
	s.Handoffs += len(flushed)
	forgotten := make(map[coord.Epoch]bool)
	for _, o := range t.acknowledged(Forget) {
		forgotten[o.Epoch] = true
	}
	for i := 1; i < len(t.grants); i++ {
		if last := t.grants[i-1].Epoch; !flushed[last] && !forgotten[last] {
			s.Takeovers++
		}
	}
}

// flushed are the epochs that ended with everything in a copy.
func (t *tenantHistory) flushed() map[coord.Epoch]bool {
	epochs := make(map[coord.Epoch]bool)
	for _, o := range t.acknowledged(Handoff) {
		epochs[o.Epoch] = true
	}
	for _, e := range t.ends {
		if e.Flushed {
			epochs[e.Epoch] = true
		}
	}
	return epochs
}

func (t *tenantHistory) countCalls(s *Summary) {
	for _, o := range t.ops {
		switch {
		case o.failed():
			s.Refused++
		case !o.ok():
			s.Unknown++
		case o.Call == Append || o.Call == Set:
			s.Acknowledged++
		case o.Call == Read || o.Call == Get:
			s.Reads++
		}
	}
}

// lost counts the acknowledged appends that the last read lacks.
func (t *tenantHistory) lost() int {
	reads := t.acknowledged(Read)
	if len(reads) == 0 {
		return 0
	}
	last := slices.MaxFunc(reads, func(a, b *operation) int { return cmp.Compare(a.began, b.began) })
	there := make(map[string]bool, len(last.Values))
	for _, v := range last.Values {
		there[v] = true
	}
	lost := make(map[string]bool)
	for _, o := range t.acknowledged(Append) {
		if o.ended < last.began && !there[o.value] && !t.mayBeForgotten(obligation{epoch: o.Epoch}, last) {
			lost[o.value] = true
		}
	}
	return len(lost)
}

// outages are the times from the first call that nobody had answered, since the last
// answer, to the next answer.
func (t *tenantHistory) outages(end time.Duration) []Outage {
	var calls []*operation
	for _, o := range t.ops {
		if o.Call == Append || o.Call == Set || o.Call == Read || o.Call == Get {
			calls = append(calls, o)
		}
	}
	answered := slices.DeleteFunc(slices.Clone(calls), func(o *operation) bool { return !o.ok() })
	slices.SortFunc(answered, func(a, b *operation) int { return cmp.Compare(a.ended, b.ended) })
	var all []Outage
	next, last := 0, -1
	span := func(until int, to time.Duration) {
		for ; next < len(calls) && calls[next].began < last; next++ {
		}
		if next < len(calls) && calls[next].began < until {
			all = append(all, Outage{Tenant: t.name, From: calls[next].invoke.At, To: to})
		}
		last = until
	}
	for _, o := range answered {
		span(o.ended, o.At)
	}
	span(t.end, end)
	return all
}
