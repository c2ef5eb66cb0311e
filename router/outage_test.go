package router_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// A lease store that is gone is one thing that is wrong, not one for each tenant and
// attempt: the log says when it begins, now and then how far it has come, and when it is
// over. Events tell of each tenant what is new, and the count is of every attempt.
func TestOutageIsToldOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zapcore.DebugLevel)
		n := w.router("a", func(o *router.Options) { o.Logger = zap.New(core) })
		const tenants = 40
		for i := range tenants {
			n.open(key(t, i))
			time.Sleep(50 * time.Millisecond)
		}
		messages := func() (all []string) {
			for _, e := range logs.TakeAll() {
				all = append(all, e.Message)
				if got, ok := e.ContextMap()["tenants"]; ok && got != int64(tenants) {
					t.Errorf("%q of %v tenants, want %d", e.Message, got, tenants)
				}
			}
			return all
		}
		want := func(when string, want ...string) {
			t.Helper()
			if got := messages(); strings.Join(got, "; ") != strings.Join(want, "; ") {
				t.Errorf("%s: logged %q, want %q", when, got, want)
			}
		}
		const begins, goesOn, ends = "leases cannot be renewed; this tenant's is the first", "leases still cannot be renewed", "no renewal of a lease fails any more"
		want("while all is well")
		before := w.leases.count("renew")
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(3 * time.Second)
		w.leases.fail("renew", nil)
		time.Sleep(ttl / 2)
		want("after a blip", begins, ends)
		w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseStoreUnavailable})
		time.Sleep(2*ttl + ttl/2)
		want("in an outage", begins, goesOn, goesOn)
		attempts := w.leases.count("renew") - before
		w.leases.fail("renew", nil)
		time.Sleep(ttl)
		got := messages()
		if len(got) != tenants+1 || got[0] != "lease lost" || got[tenants] != ends {
			t.Errorf("after leases were lost: logged %q", got)
		}
		told := 0
		for _, kind := range n.kinds() {
			if strings.HasPrefix(kind, "renew_failed") {
				told++
			}
		}
		if most := 3 * tenants; told > most || told < 2*tenants {
			t.Errorf("%d events of renewals that failed, want at most %d: each tenant's first, and first behind its fence", told, most)
		}
		if failed := n.FailedRenewals(); failed < int64(2*told) || failed > int64(attempts) {
			t.Errorf("%d renewals failed, of %d attempts and with %d events", failed, attempts, told)
		}
	})
}
