package sim

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"
)

// A stage is how far the scheduler has let an operation get.
type stage int

const (
	waiting  stage = iota // a yield: nothing has happened; a call: the request is on its way
	answered              // a call: it was applied, and the answer is on its way
)

// An op is a goroutine of the fleet, or of a client, that waits for the scheduler: at a
// point where it could be paused, or for a store.
type op struct {
	proc   *process // nil for clients
	site   string   // where in the code, such as "leases.renew"
	detail string   // tells apart what one process may do at one site at once
	target string   // the store that is called; empty at a yield
	ctx    context.Context
	ready  time.Duration // not before this

	until func() bool // the request is not answered before; nil means at once
	apply func()      // the effect of a call, on the scheduler's goroutine
	stage stage
	err   error // what the caller hears instead of the answer
	lost  bool  // the answer never arrives
	hangs bool  // the request does not arrive while the caller waits
	wake  chan struct{}

	arrived int // the step
}

// compareOps orders what arrived in one step, in which goroutines ran side by side.
func compareOps(a, b *op) int {
	return cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.procID(), b.procID()),
		cmp.Compare(a.site, b.site), cmp.Compare(a.detail, b.detail))
}

func (o *op) procID() string {
	if o.proc == nil {
		return ""
	}
	return o.proc.id
}

// isAt reports whether o waits at a site that a fault names, by itself, with the name of an
// object, or with that and the epoch it is of.
func (o *op) isAt(site string) bool {
	dir, base := path.Split(o.detail)
	return strings.HasPrefix(o.site+":"+base, site) || strings.HasPrefix(o.site+":"+path.Base(dir)+"/"+base, site)
}

func (o *op) cancelled() bool { return o.ctx != nil && o.ctx.Err() != nil }

// park waits until the scheduler lets o go on. A process that is gone waits for nothing.
func (w *world) park(o *op) {
	o.wake = make(chan struct{}, 1)
	w.mu.Lock()
	if o.proc != nil && o.proc.gone {
		w.mu.Unlock()
		o.err = errGone
		return
	}
	o.arrived = w.step
	w.mu.arrivals = append(w.mu.arrivals, o)
	w.mu.Unlock()
	<-o.wake
}

// yield is a point at which anything else may happen first.
func (w *world) yield(p *process, site, detail string) {
	w.park(&op{proc: p, site: site, detail: detail})
}

// call sends a request to a store and waits for the answer. apply runs when the store
// receives the request, which may be never, or after call has returned with an error.
func (w *world) call(ctx context.Context, p *process, target, site, detail string, apply func()) error {
	// A context that has ended already is noticed in a step of its own: whether it ended
	// before this moment or just after may depend on how goroutines ran.
	o := &op{proc: p, site: target + "." + site, detail: detail, target: target, ctx: ctx, apply: apply}
	w.park(o)
	return o.err
}

// whose names the client whose goroutine this is, if it is one's. Two clients may come to the
// same point at the same moment, and only this tells their operations apart.
func (w *world) whose() string {
	if n, ok := w.clientOf.Load(goroutine()); ok {
		return fmt.Sprintf("client %03d", n)
	}
	return ""
}

// goroutine is the number of the calling one, which the runtime tells nobody but people.
func goroutine() string {
	var buf [64]byte
	text, _ := strings.CutPrefix(string(buf[:runtime.Stack(buf[:], false)]), "goroutine ")
	number, _, _ := strings.Cut(text, " ")
	return number
}
