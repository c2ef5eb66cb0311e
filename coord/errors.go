package coord

import (
	"errors"
	"fmt"
	"strings"
)

// A Code is the stable name of a category of failure. A Code is itself an error,
// so that errors.Is(err, CodeFenced) tests for it through any wrapping.
type Code string

// The codes, in the order in which a tenant's life can meet them.
const (
	// CodeIDInvalid is returned when an id, an owner or a secret is not of its
	// format, before any store or file is touched.
	CodeIDInvalid Code = "ID_INVALID"
	// CodeTTLInvalid is returned when a lease's time to live is out of bounds.
	CodeTTLInvalid Code = "TTL_INVALID"
	// CodeOptionsInvalid is returned when a constructor was given options that
	// contradict each other or are out of range; all violations are named.
	CodeOptionsInvalid Code = "OPTIONS_INVALID"
	// CodeTenantUnknown is returned when an operation that must not create a
	// tenant found none.
	CodeTenantUnknown Code = "TENANT_UNKNOWN"
	// CodeAtCapacity is returned when a replica holds as many tenants as it may,
	// before the lease or any file is touched.
	CodeAtCapacity Code = "AT_CAPACITY"
	// CodeRouterClosed is returned when the replica is shutting down.
	CodeRouterClosed Code = "ROUTER_CLOSED"
	// CodeLeaseHeld is returned when another holder has the lease; see [LeaseHeldError].
	CodeLeaseHeld Code = "LEASE_HELD"
	// CodeLeaseLost is returned when the lease store says that a tenure is over,
	// or never was. It is final: the same tenure never comes back.
	CodeLeaseLost Code = "LEASE_LOST"
	// CodeLeaseStoreUnavailable is returned when the lease store could not be
	// asked, or its answer was not heard.
	CodeLeaseStoreUnavailable Code = "LEASE_STORE_UNAVAILABLE"
	// CodeEpochRolledBack is returned when durable copies exist of an epoch that
	// the lease store has not granted yet: it was restored from an old backup,
	// or replaced. Nothing is served until an operator raises the epoch.
	CodeEpochRolledBack Code = "EPOCH_ROLLED_BACK"
	// CodeRestoreInvalid is returned when copies exist and none can be trusted;
	// see [RestoreInvalidError].
	CodeRestoreInvalid Code = "RESTORE_INVALID"
	// CodeLedgerInvalid is returned when a file is not a ledger of this tenant
	// that this version of the code understands.
	CodeLedgerInvalid Code = "LEDGER_INVALID"
	// CodeLedgerNewer is returned when a ledger has a newer schema than this version of
	// the code knows. Nothing was written and the lease was given back, for a replica
	// that knows it.
	CodeLedgerNewer Code = "LEDGER_NEWER"
	// CodeCopyConflict is returned when somebody else's object lies where only
	// the holder of this epoch may write.
	CodeCopyConflict Code = "COPY_CONFLICT"
	// CodeCopyStoreUnavailable is returned when the copy store failed or did not
	// answer in time.
	CodeCopyStoreUnavailable Code = "COPY_STORE_UNAVAILABLE"
	// CodeFenced is returned when this process cannot prove that it still holds
	// the lease; see [FencedError]. Nothing was acknowledged and nothing was
	// committed by the refused call.
	CodeFenced Code = "FENCED"
	// CodeOutcomeUnknown is returned when a write was applied locally but could
	// not be acknowledged; see [OutcomeUnknownError].
	CodeOutcomeUnknown Code = "OUTCOME_UNKNOWN"
	// CodeLedgerBusy is returned when a call waited in vain for its turn to use the
	// ledger. It had no effect and may be repeated.
	CodeLedgerBusy Code = "LEDGER_BUSY"
	// CodeLedgerFull is returned when the ledger cannot grow: the disk is full, or the
	// ledger has reached its size limit. The transaction is gone, nothing that was
	// there is, and reads go on. An open or a copy that found no room on the
	// replica's disk fails with it too, and has changed nothing.
	CodeLedgerFull Code = "LEDGER_FULL"
	// CodeLedgerGone is returned when the local file of an open ledger is not there any
	// more, or is another one: somebody else deleted or replaced it. The tenure ends, and
	// the next one starts from the newest copy.
	CodeLedgerGone Code = "LEDGER_GONE"
	// CodeLedgerDamaged is returned when the local file of an open ledger does not hold
	// any more what was written to it. The tenure ends, and the next one starts from the
	// newest copy that can be trusted.
	CodeLedgerDamaged Code = "LEDGER_DAMAGED"
	// CodeResourcesExhausted is returned when this process may open no more files. What
	// needed one had no effect and may be repeated; nothing else is concerned.
	CodeResourcesExhausted Code = "RESOURCES_EXHAUSTED"
	// CodeSQLRefused is returned when a statement would leave the tenant's file
	// or change a setting that copies depend on.
	CodeSQLRefused Code = "SQL_REFUSED"
	// CodeIdempotencyConflict is returned when an idempotency key was used
	// before with a different body.
	CodeIdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	// CodeDraining is returned when the tenant is being handed off or forgotten
	// here and takes no new work.
	CodeDraining Code = "DRAINING"
	// CodeDrainTimeout is returned when running work outlasted a drain; see
	// [DrainTimeoutError].
	CodeDrainTimeout Code = "DRAIN_TIMEOUT"
	// CodeHandleClosed is returned when a handle, or something that a callback
	// kept, is used after its end.
	CodeHandleClosed Code = "HANDLE_CLOSED"
)

// Error returns the code's text.
func (c Code) Error() string { return string(c) }

// ErrorCode returns c, so that [CodeOf] finds a bare Code.
func (c Code) ErrorCode() Code { return c }

// CodeOf returns the code of the outermost error in err's tree that has one, or
// "" if none has.
func CodeOf(err error) Code {
	var coded interface {
		error
		ErrorCode() Code
	}
	if errors.As(err, &coded) {
		return coded.ErrorCode()
	}
	return ""
}

// An Error is a failure with a code and no further detail for programs. It is its
// Code to errors.Is, and unwraps to its cause.
type Error struct {
	Code   Code
	Op     string // what was being done, such as "acquire"; may be empty
	Key    Key    // the tenant concerned; zero if none
	Detail string // a sentence for people; may be empty
	Hint   string // what an operator can do about it; empty if nothing
	Err    error  // the cause; may be nil
}

// Error joins the parts that are set.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Op != "" {
		b.WriteString(": " + e.Op)
	}
	if !e.Key.IsZero() {
		b.WriteString(" " + e.Key.String())
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// ErrorCode returns e.Code.
func (e *Error) ErrorCode() Code { return e.Code }

// Is reports whether target is e's code.
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A LeaseHeldError says who holds a lease that was asked for.
type LeaseHeldError struct {
	Record Record // as the store had it when it refused
}

// Error names the holder.
func (e *LeaseHeldError) Error() string {
	return fmt.Sprintf("%s: %s is held by %s at epoch %d", CodeLeaseHeld, e.Record.Key, e.Record.Owner, e.Record.Epoch)
}

// ErrorCode returns [CodeLeaseHeld].
func (e *LeaseHeldError) ErrorCode() Code { return CodeLeaseHeld }

// Is reports whether target is [CodeLeaseHeld].
func (e *LeaseHeldError) Is(target error) bool { return target == CodeLeaseHeld }

// A FenceReason says why a gate refuses.
type FenceReason string

// The reasons of a [FencedError].
const (
	FenceReleased FenceReason = "released"        // this process gave the lease back
	FenceLost     FenceReason = "lost"            // the store said that the tenure is over
	FenceExpired  FenceReason = "expired locally" // the fence passed; a renewal may still resume the tenure
)

// A FencedError says that this process cannot prove that it holds the lease, so
// it refused to work or to acknowledge.
type FencedError struct {
	Key    Key
	Epoch  Epoch // of the tenure that cannot be proved
	Reason FenceReason
}

// Error names tenant, epoch and reason.
func (e *FencedError) Error() string {
	return fmt.Sprintf("%s: %s at epoch %d: the lease is %s", CodeFenced, e.Key, e.Epoch, e.Reason)
}

// ErrorCode returns [CodeFenced].
func (e *FencedError) ErrorCode() Code { return CodeFenced }

// Is reports whether target is [CodeFenced].
func (e *FencedError) Is(target error) bool { return target == CodeFenced }

// An OutcomeUnknownError says that a write was committed to the local ledger but
// the lease could not be proved afterwards, so it must not be acknowledged; or that the
// context of the call had ended by then. The write stays if the same tenure goes on, be it
// after a renewal, or if a copy took it while the lease was still held; otherwise it is in
// no later ledger. Retry it under the same idempotency key to find out.
//
// It does not match [CodeFenced], whose promise is that nothing was committed;
// the refusal of the gate is in Cause.
type OutcomeUnknownError struct {
	Cause error // why the gate refused, usually a *FencedError; or the error of the context
}

// Error says that what was written may or may not last, and why.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%s: what was written, if anything, cannot be acknowledged: %v", CodeOutcomeUnknown, e.Cause)
}

// ErrorCode returns [CodeOutcomeUnknown].
func (e *OutcomeUnknownError) ErrorCode() Code { return CodeOutcomeUnknown }

// Is reports whether target is [CodeOutcomeUnknown].
func (e *OutcomeUnknownError) Is(target error) bool { return target == CodeOutcomeUnknown }

// A DrainTimeoutError says that a drain ended with work still running; the tenant
// serves again.
type DrainTimeoutError struct {
	Key      Key
	InFlight int // calls that were still running at the deadline
}

// Error names the tenant and the number of calls.
func (e *DrainTimeoutError) Error() string {
	return fmt.Sprintf("%s: %s: %d calls still in flight", CodeDrainTimeout, e.Key, e.InFlight)
}

// ErrorCode returns [CodeDrainTimeout].
func (e *DrainTimeoutError) ErrorCode() Code { return CodeDrainTimeout }

// Is reports whether target is [CodeDrainTimeout].
func (e *DrainTimeoutError) Is(target error) bool { return target == CodeDrainTimeout }

// A SkippedCopy is a durable copy that was not trusted.
type SkippedCopy struct {
	Epoch  Epoch  `json:"epoch"`
	Seq    uint64 `json:"seq"`
	Reason string `json:"reason"`
}

// A RestoreInvalidError says that copies of a tenant exist and none could be
// trusted, so the open failed rather than start from an empty ledger.
type RestoreInvalidError struct {
	Key     Key
	Skipped []SkippedCopy // newest first
}

// Error lists the skipped copies with their reasons.
func (e *RestoreInvalidError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: none of %d copies can be trusted", CodeRestoreInvalid, e.Key, len(e.Skipped))
	for _, s := range e.Skipped {
		fmt.Fprintf(&b, "; %s seq %d: %s", s.Epoch, s.Seq, s.Reason)
	}
	return b.String()
}

// ErrorCode returns [CodeRestoreInvalid].
func (e *RestoreInvalidError) ErrorCode() Code { return CodeRestoreInvalid }

// Is reports whether target is [CodeRestoreInvalid].
func (e *RestoreInvalidError) Is(target error) bool { return target == CodeRestoreInvalid }
