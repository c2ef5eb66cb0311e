package router_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// A copy store that does not even return when its time is over, as a file system that
// hangs, keeps Close no longer than a while: it names whom it could not save, and their
// leases are free.
func TestCloseLeavesBehindWhatHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sick := &sickFor{Store: w.copies}
		a := w.router("a", func(o *router.Options) {
			o.Copies, o.CopyTimeout, o.CopyStallTimeout, o.CloseConcurrency = sick, 10*time.Second, 10*time.Second, 2
		})
		const tenants = 5
		var handles []*router.Handle
		for n := range tenants {
			handles = append(handles, a.open(key(t, n)))
			mustAdd(t, handles[n], "one")
		}
		saved := a.open(key(t, tenants)) // as it was opened: there is nothing to copy
		release := make(chan struct{})
		hang := func(context.Context) error { <-release; return errors.New("stale file handle") }
		sick.how.Store(&hang)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		err := a.Close(ctx)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("closing took %v", took)
		}
		var failed *router.CloseError
		if !errors.As(err, &failed) || len(failed.Tenants) < tenants || !errors.Is(err, coord.CodeCopyStoreUnavailable) {
			t.Fatalf("closed with %v", err)
		}
		for n, left := range failed.Tenants[:tenants] {
			if left.Key != key(t, n) {
				t.Errorf("the tenant %s is named in place of %s", left.Key, key(t, n))
			}
		}
		b := w.router("b")
		for n, h := range handles {
			wantCode(t, h.Check(), coord.CodeHandleClosed)
			if next := b.open(key(t, n)); next.Epoch() != 2 {
				t.Errorf("the next epoch is %d", next.Epoch())
			}
		}
		close(release)
		<-saved.Done()
		for _, h := range handles {
			<-h.Done() // nothing of it is left once the calls return
		}
	})
}

// A store that is only slow is waited for: final copies are made though the time is up.
func TestCloseWaitsForCopiesThatGetOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sick := &sickFor{Store: w.copies}
		a := w.router("a", func(o *router.Options) {
			o.Copies, o.CopyTimeout, o.CloseConcurrency = sick, 15*time.Second, 1
		})
		const tenants = 5
		for n := range tenants {
			mustAdd(t, a.open(key(t, n)), "one")
		}
		slow := func(context.Context) error { time.Sleep(12 * time.Second); return nil }
		sick.how.Store(&slow)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		sick.how.Store(nil)
		b := w.router("b")
		for n := range tenants {
			wantHeld(t, b.open(key(t, n)), "one")
		}
	})
}
