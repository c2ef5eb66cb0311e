package coord

import (
	"context"
	"time"
)

// A Renewal is what a [LeaseStore] answered to the renewal of one tenure.
type Renewal struct {
	Grant Grant // if Err is nil
	Err   error
}

// A BatchRenewer is a [LeaseStore] that renews many tenures for the price of a few. A
// replica of thousands of tenants then needs no goroutine to wake for each of them,
// several times in every TTL.
type BatchRenewer interface {
	// RenewAll renews each of the tenures as a Renew would that is called at the same
	// moment, and returns what each of those would have, in order. It returns when it has
	// an answer for all of them, or soon after ctx has ended; so one that the store is
	// slow about delays what is known of the others.
	RenewAll(ctx context.Context, tenures []Tenure, ttl time.Duration) []Renewal
}
