package router

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
)

// A State is where a tenant stands on this replica.
type State int

// The states of a [Handle]; the package comment draws how they follow each other.
const (
	StateOpening    State = iota // acquired, not yet serving; no caller sees such a handle
	StateServing                 // work is accepted
	StateDraining                // running work finishes, new work is refused
	StateFlushing                // nothing can be written, the final copy is made
	StateForgetting              // running work finishes, then everything is deleted
	StateClosed                  // over for good
)

var stateNames = [...]string{"opening", "serving", "draining", "flushing", "forgetting", "closed"}

// String returns the state's name in lower case.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// A viewGate is the gate of everything a handle gives out: the lease's gate, and
// a shutter that the handle closes while it flushes and when it ends.
type viewGate struct {
	lease *fencing.Lease
	shut  atomic.Pointer[error]
}

// Check implements [fencing.Gate].
func (g *viewGate) Check() error {
	if why := g.shut.Load(); why != nil {
		return *why
	}
	return g.lease.Check()
}

// CheckRead implements [fencing.ReadGate].
func (g *viewGate) CheckRead() error {
	if why := g.shut.Load(); why != nil {
		return *why
	}
	return g.lease.CheckRead()
}

func (g *viewGate) close(why error) { g.shut.Store(&why) }
func (g *viewGate) open()           { g.shut.Store(nil) }

// enter counts a call in, or says why it may not start. Every nil is paired with
// one leave.
func (h *Handle) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state != StateServing {
		return h.refusalLocked()
	}
	h.mu.inFlight++
	return nil
}

func (h *Handle) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.inFlight--
	if h.mu.inFlight == 0 && h.mu.state != StateServing {
		h.announceLocked() // a drain may be waiting for this
	}
}

// serving returns nil if the tenant takes work, and otherwise why not.
func (h *Handle) serving() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state != StateServing {
		return h.refusalLocked()
	}
	return nil
}

// changes returns a channel that is closed at the next change of state.
func (h *Handle) changes() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.changed
}

// refusalLocked is what a caller hears whom the state does not serve.
func (h *Handle) refusalLocked() error {
	if h.mu.state == StateClosed {
		return h.mu.ended
	}
	return &coord.Error{Code: coord.CodeDraining, Key: h.key, Detail: "the tenant is " + h.mu.state.String() + " on this replica"}
}

// beginServing ends the opening, unless the tenure ended first.
func (h *Handle) beginServing() error {
	return h.become(StateServing, StateOpening)
}

// beginDrain keeps new work out.
func (h *Handle) beginDrain() error { return h.become(StateDraining, StateServing) }

// beginForget keeps new work out, for good unless the drain times out.
func (h *Handle) beginForget() error { return h.become(StateForgetting, StateServing) }

// beginFlush closes the view to everybody, also to what runs outside Run.
func (h *Handle) beginFlush() error {
	return h.become(StateFlushing, StateDraining)
}

// closeView does the same for a forget, once it has drained.
func (h *Handle) closeView() error {
	return h.become(StateForgetting, StateForgetting)
}

// resume takes up serving again after a handoff or a forget that failed in state
// from, unless the tenure ended meanwhile.
func (h *Handle) resume(from State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state != from {
		return h.refusalLocked()
	}
	h.mu.state = StateServing
	h.gate.open()
	h.announceLocked()
	return nil
}

// become moves from one state to the next, or refuses as the present state does.
// A state that follows a drain closes the view.
func (h *Handle) become(next, from State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state != from {
		return h.refusalLocked()
	}
	h.mu.state = next
	if from == StateDraining || from == StateForgetting {
		h.gate.close(h.refusalLocked())
	}
	h.announceLocked()
	return nil
}

// end makes why the handle's last word: the gate shuts, the background work is
// told to stop, and no other end happens. It returns the state it ended, and
// false if the handle had ended before or unless admits no such state.
// What is left to do is to call dismantle.
func (h *Handle) end(why error, from ...State) (ended State, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended = h.mu.state
	for _, s := range from {
		if s == ended {
			h.mu.state, h.mu.ended = StateClosed, why
			h.gate.close(why)
			h.cancel()
			h.announceLocked()
			return ended, true
		}
	}
	return ended, false
}

func (h *Handle) announceLocked() {
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
}

// awaitIdle returns once no call is in flight. It gives up when the drain timeout
// has passed, ctx has ended, or the state is no longer during.
func (h *Handle) awaitIdle(ctx context.Context, during State) error {
	timer := h.router.opts.Clock.NewTimer(h.router.opts.DrainTimeout)
	defer timer.Stop()
	for {
		inFlight, changed, err := h.inFlight(during)
		if err != nil || inFlight == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C():
			// The count is read again: work may have ended with the timer.
			if inFlight, _, err = h.inFlight(during); err != nil || inFlight == 0 {
				return err
			}
			return &coord.DrainTimeoutError{Key: h.key, InFlight: inFlight}
		}
	}
}

func (h *Handle) inFlight(during State) (n int, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state != during {
		return 0, nil, h.refusalLocked()
	}
	return h.mu.inFlight, h.mu.changed, nil
}
