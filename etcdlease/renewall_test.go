package etcdlease_test

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaseholddb/leasehold/coord"
)

func tenuresOf(grants []coord.Grant) (tenures []coord.Tenure) {
	for _, g := range grants {
		tenures = append(tenures, g.Tenure)
	}
	return tenures
}

// Trap 8: many tenures are renewed with one keepalive, which was sent after the call
// began, and one that needs more than a keepalive keeps none of them waiting.
func TestRenewAllSharesAKeepalive(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, other := open(t, w), open(t, nil)
	const n = 50
	var grants []coord.Grant
	for i := range n {
		grants = append(grants, acquire(t, s, key(t, i), "a", 10*time.Minute))
	}
	before := w.count(keepAliveMethod)
	for i, r := range s.RenewAll(t.Context(), tenuresOf(grants), 10*time.Minute) {
		if r.Err != nil || r.Grant.Tenure != grants[i].Tenure || r.Grant.Revision != grants[i].Revision || !r.Grant.LeaseUntil.After(grants[i].LeaseUntil) {
			t.Errorf("the renewal of %+v is %+v, %v", grants[i], r.Grant, r.Err)
		}
	}
	if sent := w.count(keepAliveMethod) - before; sent != 1 {
		t.Errorf("%d keepalives were sent, want 1", sent)
	}
	foreign := acquire(t, other, key(t, n), "b", 10*time.Minute)
	all := append([]coord.Grant{foreign}, grants...)
	for i, r := range s.RenewAll(t.Context(), tenuresOf(all), 10*time.Minute) {
		if r.Err != nil || r.Grant.Tenure != all[i].Tenure {
			t.Errorf("the renewal of %+v is %+v, %v", all[i], r.Grant, r.Err)
		}
	}
}

// What one etcd lease does not answer keeps nothing from those on another, although
// somebody waited for it until the end of the call.
func TestRenewAllWithALeaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	silent := acquire(t, s, key(t, 1), "a", 5*time.Minute)
	well := acquire(t, s, key(t, 2), "a", 10*time.Minute)
	_, lease := get(t, etcd(t), prefix(t)+"owner/"+key(t, 1).String())
	answered := make(chan struct{}, 16)
	w.set(func(w *wire) {
		w.unary = func(_ string, req any) fault {
			ask, ok := req.(*pb.LeaseTimeToLiveRequest)
			switch {
			case !ok:
				return noFault
			case ask.ID == lease:
				return loseRequest
			}
			select {
			case answered <- struct{}{}:
			default:
			}
			return noFault
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	renewals := make(chan []coord.Renewal, 1)
	go func() { renewals <- s.RenewAll(ctx, []coord.Tenure{silent.Tenure, well.Tenure}, 5*time.Minute) }()
	<-answered
	if err := renewErr(t, s, well.Tenure, 5*time.Minute); err != nil { // in a later round
		t.Fatal(err)
	}
	cancel()
	got := <-renewals
	wantCode(t, got[0].Err, coord.CodeLeaseStoreUnavailable)
	if got[1].Err != nil || got[1].Grant.Tenure != well.Tenure {
		t.Errorf("on the other lease: %+v, %v", got[1].Grant, got[1].Err)
	}
}
