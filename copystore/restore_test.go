package copystore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// seed puts files into the owner's directory, as an earlier life leaves them.
func (o *owner) seed(names ...string) {
	o.w.t.Helper()
	must(o.w.t, os.MkdirAll(o.dir, 0o700))
	for _, name := range names {
		must(o.w.t, os.WriteFile(filepath.Join(o.dir, name), []byte("old "+name), 0o600))
	}
}

func (o *owner) files() []string {
	o.w.t.Helper()
	entries, err := os.ReadDir(o.dir)
	must(o.w.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var leftovers = []string{
	"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal",
	".restore.db", ".restore.db-wal", ".image-e00000001.db",
}

// CP-4, trap 48: nothing of an older ledger stays beside the restored one.
func TestRestoreRemovesLeftovers(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	o := w.acquire()
	o.seed(append([]string{"uploads.txt"}, leftovers...)...)
	must(t, o.restore())
	if got := o.files(); !slices.Equal(got, []string{"ledger.db", "uploads.txt"}) {
		t.Errorf("the directory holds %q", got)
	}
	if !slices.Equal(o.content, []string{"a1"}) {
		t.Errorf("restored %q", o.content)
	}
	if info, err := os.Stat(o.path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the ledger's mode is %v (%v)", info.Mode(), err)
	}
}

func TestRestoreOfNewTenantRemovesLocalLedger(t *testing.T) {
	o := newWorld(t).acquire()
	o.seed(leftovers...)
	must(t, o.restore())
	if got := o.files(); len(got) > 0 || o.restored.Manifest != nil || o.restored.From() != nil {
		t.Errorf("the directory holds %q, restored %+v", got, o.restored)
	}
}

// An epoch that nobody claimed, and in which nothing was committed, is not looked at.
func TestUnclaimedEpochIsNotLookedAt(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	w.tenure("b1")
	w.remove("e00000002/origin.json")
	w.remove("e00000002/snap-000001.json")
	w.put("e00000002/strange", "x")
	o := w.acquire()
	must(t, o.open())
	if !slices.Equal(o.content, []string{"a1"}) || len(o.restored.Skipped) > 0 {
		t.Errorf("restored %q, skipped %v", o.content, o.restored.Skipped)
	}
}

// CP-6: trying again and again does not get past the copies; only an operator does.
func TestRollbackIsNotRetriedAway(t *testing.T) {
	w := newWorld(t)
	for _, word := range []string{"a1", "b1", "c1"} {
		w.tenure(word)
	}
	w.mu.latest = 0 // the lease store forgot all grants
	for attempt := range 6 {
		if err := w.acquire().restore(); !errors.Is(err, coord.CodeEpochRolledBack) {
			t.Fatalf("attempt %d: %v, want EPOCH_ROLLED_BACK", attempt+1, err)
		}
	}
	o := w.acquire()
	must(t, o.copies.ClearRollback(t.Context(), o.grant.Key))
	must(t, o.open())
	if !slices.Equal(o.content, []string{"a1", "b1", "c1"}) {
		t.Errorf("after the epoch was raised: restored %q", o.content)
	}
}

// CP-6: the epochs that a restored lease store grants anew may be used up by owners that
// get no further. The next one is above every copy, and its revision tells.
func TestEpochsUsedUpAfterARollback(t *testing.T) {
	for _, newest := range []struct {
		what   string
		remove []string
	}{
		{"a copy", nil},
		{"a claim", []string{"e00000003/snap-000001.json", "e00000003/snap-000001.db"}},
		{"a copy without a claim", []string{"e00000003/origin.json"}},
	} {
		t.Run(newest.what, func(t *testing.T) {
			w := newWorld(t)
			content := []string{"a1", "b1", "c1"}
			for _, word := range content {
				w.tenure(word)
			}
			for _, name := range newest.remove {
				w.remove(name)
			}
			granted := func(at, raisedTo coord.Epoch) *owner {
				o := w.acquire() // of epoch 4, 5, …
				o.grant.Revision, o.grant.RaisedTo = coord.Revision(100*at), raisedTo
				return o
			}
			o := granted(3, 0) // the revision of epoch 3
			o.seed("ledger.db")
			err := o.restore()
			var e *coord.Error
			if !errors.Is(err, coord.CodeEpochRolledBack) || !errors.As(err, &e) || !strings.Contains(e.Hint, "above 3") {
				t.Fatalf("granted at an older revision: %v", err)
			}
			if got := o.files(); !slices.Equal(got, []string{"ledger.db"}) {
				t.Errorf("the directory holds %q", got)
			}
			if err := granted(9, 0).restore(); !errors.Is(err, coord.CodeEpochRolledBack) {
				t.Errorf("once the revisions have caught up: %v", err)
			}
			must(t, o.copies.ClearRollback(t.Context(), o.grant.Key))
			if err := granted(2, 2).restore(); !errors.Is(err, coord.CodeEpochRolledBack) {
				t.Errorf("raised, but not above every copy: %v", err)
			}
			must(t, o.copies.ClearRollback(t.Context(), o.grant.Key))
			raised := granted(2, 3)
			must(t, raised.open())
			if newest.what == "a claim" {
				content = content[:2]
			}
			if !slices.Equal(raised.content, content) {
				t.Errorf("after the epoch was raised: restored %q", raised.content)
			}
		})
	}
}

// A lost origin is no weaker than a damaged one: the epoch's own copies count, and
// what an older owner uploaded late does not come back.
func TestLostOriginDoesNotBringBackOlderCopies(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	w.tenure("b1")
	w.remove("e00000002/origin.json")
	o := w.acquire()
	must(t, o.open())
	if !slices.Equal(o.content, []string{"a1", "b1"}) {
		t.Errorf("restored %q, want the newest epoch's copy", o.content)
	}
	w.remove("e00000002/snap-000001.db")
	w.remove("e00000003/origin.json")
	var invalid *coord.RestoreInvalidError
	if err := w.acquire().restore(); !errors.As(err, &invalid) {
		t.Errorf("with neither origin nor image: %v, want RESTORE_INVALID", err)
	}
}

// CP-6, trap 21: anything of the granted epoch or a later one means that the
// lease store forgot grants.
func TestRolledBackLeaseStoreIsNoticed(t *testing.T) {
	for _, left := range []string{"origin.json", "snap-000001.json", "snap-000001.db"} {
		for _, again := range []coord.Epoch{1, 2} {
			w := newWorld(t)
			w.tenure("a1")
			w.tenure("b1")
			for _, name := range w.names() {
				if strings.HasPrefix(name, "e00000002/") && name != "e00000002/"+left {
					w.remove(name)
				}
			}
			w.mu.latest = again - 1
			o := w.acquire()
			o.seed("ledger.db")
			err := o.restore()
			var e *coord.Error
			if !errors.Is(err, coord.CodeEpochRolledBack) || !errors.As(err, &e) || !strings.Contains(e.Hint, "above 2") {
				t.Errorf("with %s left, epoch %d granted again: restore gives %v", left, again, err)
			}
			if got := o.files(); !slices.Equal(got, []string{"ledger.db"}) {
				t.Errorf("the directory holds %q", got)
			}
		}
	}
}

// An unreachable newest copy must never let an older one be served.
func TestStoreFailureIsNotASkippedCopy(t *testing.T) {
	for _, part := range []string{"list", "open " + newest + ".json", "open " + newest + ".db"} {
		w := twoTenures(t)
		o := w.acquire(steps(func(_ int, call string, _ bool) error {
			if call == part {
				return errFault
			}
			return nil
		}))
		o.seed("ledger.db")
		err := o.restore()
		if !errors.Is(err, coord.CodeCopyStoreUnavailable) || !errors.Is(err, errFault) {
			t.Errorf("%s fails: restore gives %v", part, err)
		}
		if got := o.files(); !slices.Equal(got, []string{"ledger.db"}) {
			t.Errorf("%s fails: the directory holds %q", part, got)
		}
	}
}

func TestVerifyDecides(t *testing.T) {
	broken := errors.New("out of descriptors")
	cases := []struct {
		name   string
		verify error
		want   error // of the restore; nil if the next older copy is taken
	}{
		{"not a ledger", &coord.Error{Code: coord.CodeLedgerInvalid}, nil},
		{"could not look", broken, broken},
		{"cancelled", context.Canceled, context.Canceled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := twoTenures(t).acquire()
			req := o.request()
			calls := 0
			req.Verify = func(_ context.Context, path string) (int64, error) {
				if path == req.Path {
					t.Error("the live file is verified")
				}
				must(t, os.WriteFile(path+"-wal", nil, 0o600)) // as SQLite may
				if calls++; calls == 1 {
					return 0, c.verify
				}
				return verify(o.w.key, path)
			}
			restored, err := o.copies.Restore(t.Context(), o.grant, req)
			if !errors.Is(err, c.want) {
				t.Fatalf("restore gives %v, want %v", err, c.want)
			}
			if c.want != nil {
				if code := coord.CodeOf(err); code != "" {
					t.Errorf("the store is blamed: %s", code)
				}
				return
			}
			if ref := restored.From(); ref == nil || ref.Seq != 1 {
				t.Errorf("restored %v", ref)
			}
			if got := o.files(); !slices.Equal(got, []string{"ledger.db"}) {
				t.Errorf("the directory holds %q", got)
			}
		})
	}
}

// A superseded owner says so, whatever else it saw.
func TestSupersededRestoreSaysSo(t *testing.T) {
	cases := map[string]func(w *world){
		"no copy verifies": func(w *world) {
			w.put(newest+".db", "x")
			w.put("e00000002/origin.json", "x")
			w.remove(older + ".json")
		},
		"successor opened": func(w *world) { must(w.t, w.acquire().open()) },
		"all is well":      func(*world) {},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			w := twoTenures(t)
			o := w.acquire()
			o.seed("ledger.db")
			damage(w)
			w.mu.latest++
			if err := o.restore(); coord.CodeOf(err) != coord.CodeLeaseLost {
				t.Errorf("restore gives %v", err)
			}
			if got := o.files(); !slices.Equal(got, []string{"ledger.db"}) {
				t.Errorf("the directory holds %q", got)
			}
		})
	}
}

func TestRestoreNamesLocalFailures(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	o := w.acquire()
	must(t, os.MkdirAll(filepath.Join(o.dir, ".restore.db", "in the way"), 0o700))
	var path *fs.PathError
	if err := o.restore(); !errors.As(err, &path) || coord.CodeOf(err) != "" {
		t.Errorf("restore gives %v", err)
	}
}

func TestBadArgumentsTouchNothing(t *testing.T) {
	o := newWorld(t).acquire(steps(func(_ int, call string, _ bool) error {
		t.Errorf("the store was called: %s", call)
		return nil
	}))
	var none coord.Grant
	if _, err := o.copies.Restore(t.Context(), none, o.request()); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("restore gives %v", err)
	}
	if _, err := o.copies.Claim(t.Context(), none, nil); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("claim gives %v", err)
	}
	if _, err := o.copies.Claim(t.Context(), o.grant, &copystore.Ref{Epoch: 1, Seq: 1}); err == nil {
		t.Error("epoch 1 claims to have started from a copy of epoch 1")
	}
	if _, err := o.copies.Forget(t.Context(), coord.Key{}, 1); !errors.Is(err, coord.CodeIDInvalid) {
		t.Errorf("forget gives %v", err)
	}
	if _, err := os.Stat(o.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory was made")
	}
	bad := copystore.Options{CallTimeout: -1, StallTimeout: -1}
	if _, err := copystore.New(o.w.store, bad); !errors.Is(err, coord.CodeOptionsInvalid) ||
		!strings.Contains(err.Error(), "CallTimeout") || !strings.Contains(err.Error(), "StallTimeout") {
		t.Errorf("New gives %v", err)
	}
	if _, err := copystore.New(nil, copystore.Options{}); !errors.Is(err, coord.CodeOptionsInvalid) {
		t.Errorf("New without a store gives %v", err)
	}
}

func TestRestoreNeedsItsRequest(t *testing.T) {
	o := newWorld(t).acquire()
	for what, drop := range map[string]func(*copystore.RestoreRequest){
		"path":       func(r *copystore.RestoreRequest) { r.Path = "" },
		"verify":     func(r *copystore.RestoreRequest) { r.Verify = nil },
		"still held": func(r *copystore.RestoreRequest) { r.StillHeld = nil },
		"prove":      func(r *copystore.RestoreRequest) { r.Prove = nil },
	} {
		req := o.request()
		drop(&req)
		if _, err := o.copies.Restore(t.Context(), o.grant, req); !errors.Is(err, coord.CodeOptionsInvalid) {
			t.Errorf("without %s: %v", what, err)
		}
	}
}
