package coord

import (
	"context"
	"time"
)

// An AuditOp names an operation that a lease store granted.
type AuditOp string

// The operations of an audit trail.
const (
	AuditAcquire AuditOp = "acquire"
	AuditRenew   AuditOp = "renew"
	AuditRelease AuditOp = "release"
	AuditForget  AuditOp = "forget"
)

// An AuditEntry is one granted operation. Refused operations leave none, and
// neither does one that changed nothing, such as releasing a lease that is over.
type AuditEntry struct {
	Op    AuditOp
	Owner string
	Epoch Epoch
	At    time.Time // when the store applied it, as near as it can tell; for people to read
}

// An Auditor is a [LeaseStore] that remembers what it granted.
type Auditor interface {
	// Audit returns what was granted on key, in the order in which it was applied,
	// and nothing for a key that was never acquired. A store may have forgotten
	// the oldest entries, and a store whose renewals write nothing has none of
	// those; its documentation says so.
	Audit(ctx context.Context, key Key) ([]AuditEntry, error)
}
