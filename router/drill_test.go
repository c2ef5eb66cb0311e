package router_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// Issue 5, 8: the newest copy of an open tenant is proved restorable in time; one
// that rotted is reported and replaced, and nothing is lost with it.
func TestDrill(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const every = time.Minute
		a, b := w.router("a", func(o *router.Options) { o.DrillEvery = every }), w.router("b")
		h := a.open(key(t, 1))
		time.Sleep(2 * every)
		if _, ok := h.Proved(); ok {
			t.Error("a tenant without a copy has a proof")
		}
		mustAdd(t, h, "one")
		manifest, err := h.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * every)
		if age, ok := h.Proved(); !ok || age > every {
			t.Errorf("the proof is %v old (%v)", age, ok)
		}
		image := h.Key().String() + "/" + manifest.Ref().String() + ".db"
		if err := errors.Join(w.copies.Delete(t.Context(), image),
			w.copies.Create(t.Context(), image, strings.NewReader("rotten"), 6)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(every)
		kinds := strings.Join(a.kinds(), " ")
		if !strings.Contains(kinds, "proved") || !strings.HasSuffix(kinds, "proof_failed") {
			t.Errorf("the events are %s", kinds)
		}
		if age, _ := h.Proved(); age < every/2 {
			t.Errorf("a failed drill counts as a proof %v ago", age)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := b.open(key(t, 1))
		wantHeld(t, next, "one")
		if age, ok := next.Proved(); !ok || age != 0 {
			t.Errorf("a restore is a proof, not %v (%v)", age, ok)
		}
	})
	_, err := router.New(router.Options{DrillEvery: -1})
	if !errors.Is(err, coord.CodeOptionsInvalid) || !strings.Contains(err.Error(), "DrillEvery") {
		t.Errorf("a negative DrillEvery gives %v", err)
	}
}
