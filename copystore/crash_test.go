package copystore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

type faultKind struct {
	name    string
	applied bool
	inject  func(n int, applied bool, hit *bool) func(copystore.Store) copystore.Store
}

func faultKinds() []faultKind {
	return []faultKind{
		{"crash before", false, crashAt},
		{"crash after", true, crashAt},
		{"fault before", false, failAt},
		{"fault after", true, failAt},
	}
}

// eachFault runs scenario once for each store call that it makes and each kind
// of fault, until a run meets no fault.
func eachFault(t *testing.T, scenario func(t *testing.T, wrap func(copystore.Store) copystore.Store)) {
	for _, kind := range faultKinds() {
		for n := 1; ; n += stride {
			hit := false
			t.Run(fmt.Sprintf("%s call %d", kind.name, n), func(t *testing.T) {
				scenario(t, kind.inject(n, kind.applied, &hit))
			})
			if !hit {
				if n < 5 {
					t.Errorf("the scenario makes only %d calls", n-1)
				}
				break
			}
		}
	}
}

// checkSuccessor opens the next tenure on the healthy store: every reported event
// is there, and nothing is wrong with the lineage.
func (w *world) checkSuccessor(t *testing.T) *owner {
	t.Helper()
	next := w.acquire()
	if err := next.open(); err != nil {
		t.Fatalf("the successor cannot open: %v", err)
	}
	for _, r := range w.mu.reported {
		if r.epoch > w.mu.floor {
			if err := contains(next.content, r.content); err != nil {
				t.Errorf("reported at %s: %v", r.epoch, err)
			}
		}
	}
	if len(next.restored.Skipped) > 0 {
		t.Errorf("the successor had to skip %v", next.restored.Skipped)
	}
	return next
}

// Issue 5 d: a tenure with opening, publishing and retention dies, or meets one
// fault, at each store call.
func TestFaultAtEachCallOfATenure(t *testing.T) {
	for way, keep := range map[string]int{"read": 1, "taken over": 3} {
		taking := takings()[way]
		t.Run(fmt.Sprintf("keep %d, images %s", keep, way), func(t *testing.T) {
			eachFault(t, func(t *testing.T, wrap func(copystore.Store) copystore.Store) {
				w := newWorld(t)
				w.tenure("a1", "a2")
				w.tenure("b1", "b2")
				o := w.acquire(wrap, taking)
				ready := o.open()
				for i := 0; ready == nil && i < 4; i++ {
					o.write(fmt.Sprintf("c%d", i))
					if err := o.publish(); err == nil {
						o.retain(keep)
					} else if coord.CodeOf(err) != coord.CodeCopyStoreUnavailable {
						t.Errorf("publish fails with %v", err)
					}
				}
				next := w.checkSuccessor(t)
				next.write("d1")
				must(t, next.publish(), next.retain(keep))
				w.checkSuccessor(t)
			})
		})
	}
}

// CP-9: a forget that failed at any call completes when it is repeated by the
// next owner, and what was forgotten stays so even before that.
func TestFaultAtEachCallOfForget(t *testing.T) {
	eachFault(t, func(t *testing.T, wrap func(copystore.Store) copystore.Store) {
		w := newWorld(t)
		w.tenure("a1", "a2")
		o := w.acquire(wrap)
		if err := o.open(); err == nil {
			o.write("secret")
			o.publish()
		}
		if deleted, err := o.forget(); err != nil && coord.CodeOf(err) != coord.CodeCopyStoreUnavailable {
			t.Errorf("forget fails with %v after %d", err, deleted)
		}
		next := w.checkSuccessor(t)
		if len(next.content) > 0 || next.restored.Manifest != nil {
			t.Errorf("forgotten %q came back", next.content)
		}
		next.write("new")
		must(t, next.publish())
		if _, err := next.copies.Forget(t.Context(), w.key, w.mu.floor); err != nil {
			t.Error(err)
		}
		want := []string{"e00000003/origin.json", "e00000003/snap-000001.db", "e00000003/snap-000001.json"}
		if got := w.names(); !slices.Equal(got, want) {
			t.Errorf("left %q", got)
		}
	})
}

// A claim whose answer was lost is repeated and recognised; somebody else's is a
// conflict.
func TestClaimRecognisesItsOwn(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	hit := false
	o := w.acquire(steps(func(_ int, call string, over bool) error {
		if call == "create e00000002/origin.json" && over && !hit {
			hit = true
			return errFault
		}
		return nil
	}))
	must(t, o.restore())
	from := o.restored.From()
	if _, err := o.copies.Claim(t.Context(), o.grant, from); !errors.Is(err, coord.CodeCopyStoreUnavailable) || !errors.Is(err, errFault) {
		t.Fatalf("the first claim gives %v", err)
	}
	if _, err := o.copies.Claim(t.Context(), o.grant, from); err != nil {
		t.Errorf("the repeated claim gives %v", err)
	}
	others := map[string]func(g *coord.Grant, from **copystore.Ref){
		"owner":    func(g *coord.Grant, _ **copystore.Ref) { g.Owner = "somebody" },
		"revision": func(g *coord.Grant, _ **copystore.Ref) { g.Revision++ },
		"copy":     func(_ *coord.Grant, from **copystore.Ref) { *from = &copystore.Ref{Epoch: 1, Seq: 9} },
		"nothing":  func(_ *coord.Grant, from **copystore.Ref) { *from = nil },
	}
	for name, change := range others {
		grant, from := o.grant, from
		change(&grant, &from)
		if _, err := o.copies.Claim(t.Context(), grant, from); !errors.Is(err, coord.CodeCopyConflict) {
			t.Errorf("another %s: the claim gives %v", name, err)
		}
	}
	w.put("e00000002/origin.json", "{}")
	if _, err := o.copies.Claim(t.Context(), o.grant, from); !errors.Is(err, coord.CodeCopyConflict) {
		t.Errorf("over a broken origin the claim gives %v", err)
	}
}
