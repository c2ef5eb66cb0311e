package router

import "github.com/leaseholddb/leasehold/coord"

// Confirm says whether work that [Handle.Run] acknowledged may still be reported as done,
// for whoever reports it later than Run returned, such as a server over a network: the
// process may have been stopped in between for longer than the lease. It is nil while the
// lease is provably held, and after a handoff, whose final copy holds the work. Otherwise
// it is a [*coord.OutcomeUnknownError].
func (h *Handle) Confirm() error {
	fenced := h.lease.Check()
	if fenced == nil || h.flushed.Load() {
		return nil
	}
	return &coord.OutcomeUnknownError{Cause: fenced}
}
