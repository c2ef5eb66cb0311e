package coordtest

import (
	"context"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// checkRenewMany checks nothing of a store that renews one by one.
func checkRenewMany(ctx context.Context, s subject) error {
	batch, ok := s.Store.(coord.BatchRenewer)
	if !ok {
		return nil
	}
	early, err := s.second(ctx)
	if err != nil {
		return err
	}
	last, err := s.taken(ctx, s.key(1), "b", 1)
	if err != nil {
		return err
	}
	over, err := s.taken(ctx, s.key(2), "a", 1)
	if err != nil {
		return err
	}
	if err := s.Store.Release(ctx, over); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	tenures, codes := []coord.Tenure{early, over, {Key: early.Key, Epoch: 1}}, []coord.Code{"", coord.CodeLeaseLost, coord.CodeIDInvalid}
	for _, other := range s.others(early) {
		tenures, codes = append(tenures, other), append(codes, coord.CodeLeaseLost)
	}
	tenures, codes = append(tenures, last), append(codes, "")
	for range 6 { // a TTL and a fifth
		if err := s.pass(ctx, s.TTL/5); err != nil {
			return err
		}
		renewals := batch.RenewAll(ctx, tenures, s.TTL)
		if len(renewals) != len(tenures) {
			return fmt.Errorf("%d tenures have %d answers", len(tenures), len(renewals))
		}
		for i, r := range renewals {
			if coord.CodeOf(r.Err) != codes[i] || (r.Err == nil) != (codes[i] == "") || r.Err == nil && (r.Grant.Tenure != tenures[i] || r.Grant.TTL < s.TTL) {
				return fmt.Errorf("the renewal of %+v is %+v, %v", tenures[i], r.Grant, r.Err)
			}
		}
	}
	return first(s.expectHeld(ctx, s.key(0), "a", 2), s.expectHeld(ctx, s.key(1), "b", 1))
}
