package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
)

// Issue 6, numbers: a stream of forwarded requests asks the lease store once; when the
// tenant moves, the first request that meets the old owner finds the new one.
func TestOwnersAreRemembered(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.node("a"), f.node("b"), f.node("c")
	a.must(201, "POST", tenant+"/events", event("first"))
	b.must(201, "POST", tenant+"/events", event("second"))
	f.leases.reads.Store(0)
	for i := range 20 {
		b.must(201, "POST", tenant+"/events", event(fmt.Sprint(i)))
	}
	if n := f.leases.reads.Load(); n != 0 {
		t.Errorf("20 forwarded requests asked the lease store %d times", n)
	}
	p := b.refused(421, coord.CodeLeaseHeld, "POST", tenant+"/events", event("x"), httpapi.HeaderForward, httpapi.ForwardNever)
	if p.Owner != "a" || f.leases.reads.Load() != 1 {
		t.Errorf("who asks for the owner is told %s out of memory", p.Owner)
	}
	a.must(200, "POST", tenant+"/handoff", "")
	c.must(201, "POST", tenant+"/events", event("moved"))
	if got := b.must(201, "POST", tenant+"/events", event("followed")); got.header.Get(httpapi.HeaderReplica) != "c" || got.header.Get(httpapi.HeaderEpoch) != "2" {
		t.Errorf("done by %s at epoch %s", got.header.Get(httpapi.HeaderReplica), got.header.Get(httpapi.HeaderEpoch))
	}
	c.must(200, "POST", tenant+"/handoff", "")
	if got := b.must(201, "POST", tenant+"/events", event("home")); got.header.Get(httpapi.HeaderReplica) != "b" {
		t.Errorf("a tenant that nobody holds any more was not opened here but at %s", got.header.Get(httpapi.HeaderReplica))
	}
}
