package fencing

import (
	"context"

	"github.com/leaseholddb/leasehold/coord"
)

// Extend moves the fences of many leases with one request to store, which granted them
// all, with the same options. It returns for each lease nil if its fence has moved as a
// Renew would have moved it, and otherwise why not.
//
// It ends no tenure: what the store refuses here is left to a Renew, which asks again and
// whose answer counts. So Extend waits for none of a lease's other operations, and they do
// not wait for it.
func Extend(ctx context.Context, store coord.BatchRenewer, leases []*Lease) []error {
	if len(leases) == 0 {
		return nil
	}
	first := leases[0]
	tenures := make([]coord.Tenure, len(leases))
	for i, l := range leases {
		tenures[i] = l.grant.Tenure
	}
	sentAt := first.clock.Now()
	renewals := store.RenewAll(ctx, tenures, first.ttl)
	errs := make([]error, len(leases))
	for i, l := range leases {
		switch {
		case i >= len(renewals):
			errs[i] = &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: "renew", Key: l.grant.Key, Detail: "the store said nothing of this tenure"}
		case renewals[i].Err != nil:
			errs[i] = renewals[i].Err
		case renewals[i].Grant.Tenure != l.grant.Tenure:
			errs[i] = &coord.Error{Code: coord.CodeLeaseLost, Op: "renew", Key: l.grant.Key, Detail: "the store renewed another tenure than the one asked for"}
		default:
			l.extend(sentAt, renewals[i].Grant)
			errs[i] = l.Ended()
		}
	}
	return errs
}
