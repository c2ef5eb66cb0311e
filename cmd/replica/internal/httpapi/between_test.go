package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

// A tenant that is on its way from one owner to the next is not "not open" to a request
// that needs it open.
func TestSnapshotBetweenTwoOwners(t *testing.T) {
	f := newFleet(t)
	a := f.node("a")
	a.must(201, "POST", tenant+"/events", event("one"))
	a.must(200, "POST", tenant+"/handoff", "")
	a.refused(409, httpapi.CodeTenantNotOpen, "POST", tenant+"/snapshot", "")

	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(299)
	}))
	defer c.Close()
	f.leases.setAddress("c", c.URL)
	if _, err := f.leases.Want(t.Context(), mustKey(t), "c"); err != nil {
		t.Fatal(err)
	}
	// The first read finds that nobody has the tenant; c takes it right after that.
	f.leases.afterRead(func() {
		if _, err := f.leases.Acquire(context.Background(), mustKey(t), "c", time.Minute); err != nil {
			t.Error(err)
		}
	})
	a.must(299, "POST", tenant+"/snapshot", "")
}

// A slowStart holds what an opening asks of the copies until a test lets go.
type slowStart struct {
	copystore.Store
	asked   chan struct{} // has a value when something was asked
	release chan struct{}
	passed  atomic.Bool
}

func (s *slowStart) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if !s.passed.Load() {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-s.release
	}
	return s.Store.Create(ctx, name, r, size)
}

// So it is to one that arrives while the tenant is being opened.
func TestSnapshotWhileOpening(t *testing.T) {
	f := newFleet(t)
	slow := &slowStart{Store: f.copies, asked: make(chan struct{}, 1), release: make(chan struct{})}
	a := f.node("a", func(_ *httpapi.Options, r *router.Options) { r.Copies = slow })
	opened := a.inBackground("POST", tenant+"/open", "")
	<-slow.asked
	snapshot := a.inBackground("POST", tenant+"/snapshot", "")
	select {
	case got := <-snapshot:
		t.Errorf("while the tenant is being opened: %s", got)
	case <-time.After(200 * time.Millisecond):
		defer func() {
			if got := <-snapshot; got.status != 200 {
				t.Errorf("once the tenant is open: %s", got)
			}
		}()
	}
	slow.passed.Store(true)
	close(slow.release)
	if got := <-opened; got.status != 200 {
		t.Errorf("open: %s", got)
	}
}
