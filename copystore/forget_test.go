package copystore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

// Traps 39 and 40, CP-9: a forget touches epochs up to its floor of its own
// tenant, and nothing else.
func TestForgetTouchesOnlyDeadEpochs(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	w.tenure("b1")
	w.tenure("c1")
	w.put("e00000002/something-else", "x")
	neighbours := []string{
		w.key.String() + "0/e00000001/origin.json", w.key.String() + "-/e00000001/snap-000001.db",
		"acme/t-" + strings.Repeat("b", 32) + "/e00000001/origin.json", "acme0/" + w.key.Tenant() + "/e00000001/origin.json",
	}
	for _, name := range neighbours {
		must(t, w.store.Create(t.Context(), name, strings.NewReader("x"), 1))
	}
	o := w.acquire()
	for _, want := range []int{7, 0} {
		if deleted, err := o.copies.Forget(t.Context(), w.key, 2); deleted != want || err != nil {
			t.Errorf("forget deleted %d (%v), want %d", deleted, err, want)
		}
	}
	if got := w.kept(); got != "3:o 3:1" {
		t.Errorf("kept %q", got)
	}
	for _, name := range neighbours {
		if r, err := w.store.Open(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			r.Close()
		}
	}
}

func TestNewestEpoch(t *testing.T) {
	w := newWorld(t)
	o := w.acquire()
	newest := func(want coord.Epoch) {
		t.Helper()
		if got, err := o.copies.NewestEpoch(t.Context(), w.key); got != want || err != nil {
			t.Errorf("the newest epoch is %v (%v), want %v", got, err, want)
		}
	}
	newest(0)
	must(t, w.store.Create(t.Context(), w.key.String()+"0/e00000001/origin.json", strings.NewReader("x"), 1))
	newest(0)
	must(t, o.open())
	newest(1)
	_, err := o.forget()
	must(t, err)
	newest(0)
}

// Copies at or below the floor are dead, whoever wrote them and whenever.
func TestForgottenStaysForgotten(t *testing.T) {
	w := newWorld(t)
	o := w.tenure("secret")
	saved := map[string]string{}
	for _, name := range w.names() {
		saved[name] = w.get(name)
	}
	_, err := o.forget()
	must(t, err)
	for name, body := range saved { // an upload that was under way
		w.put(name, body)
	}
	next := w.acquire()
	must(t, next.open())
	if len(next.content) > 0 {
		t.Errorf("restored %q", next.content)
	}
	if deleted, err := next.copies.Forget(t.Context(), w.key, next.grant.ForgottenAt); deleted != 3 || err != nil {
		t.Errorf("the sweep deleted %d (%v)", deleted, err)
	}
	if got := w.kept(); got != "2:o" {
		t.Errorf("kept %q", got)
	}
}

// A delete that fails is named; the others are not given up for it, until it is
// clear that the store is gone.
func TestForgetNamesWhatFailed(t *testing.T) {
	cases := []struct {
		name    string
		failing func(call string) bool
		deleted int
		named   []string
	}{
		{"one", func(call string) bool { return strings.HasSuffix(call, "snap-000002.db") }, 7, []string{"delete ", "snap-000002.db"}},
		{"all", func(call string) bool { return strings.HasPrefix(call, "delete") }, 0, []string{"snap-000003.json", "snap-000001.db"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.tenure("a1", "a2", "a3")
			var tried []string
			o := w.acquire(steps(func(_ int, call string, over bool) error {
				if !over && strings.HasPrefix(call, "delete") {
					tried = append(tried, call)
				}
				if c.failing(call) {
					return errFault
				}
				return nil
			}))
			w.put("e00000001/snap-000009.db", "orphan")
			deleted, err := o.copies.Forget(t.Context(), w.key, 1)
			if deleted != c.deleted || !errors.Is(err, coord.CodeCopyStoreUnavailable) || !errors.Is(err, errFault) {
				t.Fatalf("forget deleted %d (%v), want %d", deleted, err, c.deleted)
			}
			for _, name := range c.named {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%q does not name %q", err, name)
				}
			}
			if c.deleted == 0 && len(tried) == 8 {
				t.Error("every single delete was tried")
			}
			if !slices.IsSortedFunc(tried, func(a, b string) int { return rank(a) - rank(b) }) {
				t.Errorf("deleted in the order %q", tried)
			}
		})
	}
}

// rank is the place in the order of deletes: a copy without its manifest is none.
func rank(call string) int {
	switch {
	case strings.HasSuffix(call, "origin.json"):
		return 2
	case strings.HasSuffix(call, ".json"):
		return 0
	}
	return 1
}
