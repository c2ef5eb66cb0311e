package router_test

import (
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// Trap 2, behind the last check of Run: whoever has to send the acknowledgement learns
// that it has come to be too late for it, unless a handoff has taken the work along.
func TestConfirm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := w.router("a")
		h := n.open(key(t, 1))
		mustAdd(t, h, "one")
		if err := h.Confirm(); err != nil {
			t.Errorf("while the lease is held: %v", err)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Confirm(); err != nil {
			t.Errorf("after a handoff: %v", err)
		}
		h = n.open(key(t, 1))
		mustAdd(t, h, "two")
		if err := h.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Confirm(); coord.CodeOf(err) != coord.CodeOutcomeUnknown {
			t.Errorf("after an abandon: %v", err)
		}
		h = n.open(key(t, 1))
		mustAdd(t, h, "three")
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(ttl)
		if err := h.Confirm(); coord.CodeOf(err) != coord.CodeOutcomeUnknown {
			t.Errorf("behind the fence: %v", err)
		}
		w.leases.fail("renew", nil)
	})
}
