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

// startStuck begins a call of Run that heeds no context: it keeps a transaction and a
// result set open until the test lets it go.
func startStuck(t *testing.T, h *router.Handle) *busy {
	t.Helper()
	b := &busy{release: make(chan struct{}), result: make(chan error, 1)}
	go func() {
		b.result <- h.Run(context.Background(), func(_ context.Context, v *router.View) error {
			tx, err := v.DB().BeginTx(context.Background(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.Exec("CREATE TABLE stuck(n)"); err != nil {
				return err
			}
			rows, err := tx.Query("SELECT * FROM sqlite_schema")
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Next()
			<-b.release
			return errors.Join(rows.Close(), tx.Commit())
		})
	}()
	synctest.Wait()
	return b
}

// Trap 71: work that never returns is reported at the drain's deadline, and the tenant
// serves again; closing the replica names it and does not wait for it; and a lease that
// is lost meanwhile takes the tenant out of this replica at once. Nothing that the work
// does afterwards is acknowledged.
func TestWorkThatNeverReturns(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *world, n *node){
		"closed": func(t *testing.T, w *world, n *node) {
			var stuck *router.CloseError
			if err := n.Close(t.Context()); !errors.As(err, &stuck) || len(stuck.Tenants) != 1 || !errors.Is(err, coord.CodeDrainTimeout) {
				t.Errorf("closed with %v", err)
			}
		},
		"lost": func(t *testing.T, w *world, n *node) {
			w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
			time.Sleep(ttl)
			synctest.Wait()
			w.leases.fail("renew", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, k := w.router("a"), key(t, 1)
				h := a.open(k)
				mustAdd(t, h, "1")
				stuck := startStuck(t, h)

				began := time.Now()
				err := h.Handoff(t.Context())
				var late *coord.DrainTimeoutError
				if !errors.As(err, &late) || late.InFlight != 1 || time.Since(began) != router.DefaultDrainTimeout {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if got, err := a.Open(t.Context(), k); err != nil || got != h {
					t.Errorf("does not serve again: %v", err)
				}

				end(t, w, a)
				select {
				case <-h.Done():
				default:
					t.Error("something of the tenure is left while the work goes on")
				}
				if a.HandleOf(k) != nil {
					t.Error("the tenant is still routed to this replica")
				}
				next := w.router("b").wait(k).handle(t)
				if err := stuck.end(); err == nil {
					t.Error("work that ended behind its tenure was acknowledged")
				}
				mustAdd(t, next, "2")
			})
		})
	}
}
