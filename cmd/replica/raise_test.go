package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/copystore/memstore"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/router"
)

// Copies tell a replica without a memory that etcd is older than they are (CP-6,
// trap 21): it serves nothing, and the operator's command puts the next epoch above
// them, from which the tenant goes on as its newest copy had it.
func TestRaiseEpochCommand(t *testing.T) {
	dir := t.TempDir()
	objects, err := dirstore.New(filepath.Join(dir, "copies"), dirstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	copies, err := copystore.New(objects, copystore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copies.Identity(t.Context()); err != nil { // as a replica's start does
		t.Fatal(err)
	}
	key := testKey(t, "acme")
	serving := func(endpoints []string, root string) (*router.Router, *etcdlease.Store) {
		t.Helper()
		s := openStore(t, endpoints)
		r, err := router.New(router.Options{ReplicaID: root, StateRoot: filepath.Join(dir, root), Leases: s, Copies: objects})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close(t.Context()) })
		return r, s
	}

	before := embedetcd.StartT(t)
	r, _ := serving(before.Endpoints(), "before")
	for range 3 {
		h, err := r.Open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Handoff(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if newest, err := copies.NewestEpoch(t.Context(), key); err != nil || newest != 3 {
		t.Fatalf("the newest copy is of epoch %d, %v", newest, err)
	}

	after := embedetcd.StartT(t)
	r, s := serving(after.Endpoints(), "after")
	if _, err := r.Open(t.Context(), key); !errors.Is(err, coord.CodeEpochRolledBack) {
		t.Fatalf("got %v, want EPOCH_ROLLED_BACK", err)
	}
	args := []string{"raise-epoch", key.String(), "--etcd", after.Endpoints()[0], "--copies", filepath.Join(dir, "copies"), "-o", "json"}
	out, err := run(t, args...)
	var got []raisedLine
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got) != 1 || got[0].NewestCopy != 3 || got[0].Next != 4 {
		t.Fatalf("printed %s, %v", out, err)
	}
	h, err := r.Open(t.Context(), key)
	if err != nil || h.Epoch() != 4 {
		t.Fatalf("opened %v, %v", h, err)
	}
	if _, err := run(t, args...); !errors.Is(err, coord.CodeLeaseHeld) {
		t.Errorf("while it is held: %v", err)
	}
	if err := h.Handoff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err = run(t, append(args[:len(args)-1], "table", "--above", "9", "--confirm-cluster")...); err != nil {
		t.Fatal(err)
	}
	if g, err := s.Acquire(t.Context(), key, "x", time.Minute); err != nil || g.Epoch != 10 {
		t.Errorf("after %q: %+v, %v", out, g, err)
	}
	for what, bad := range map[string][]string{"no tenant": {"raise-epoch"}, "no key": {"raise-epoch", "acme/x"}} {
		if _, err := run(t, bad...); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// A mistyped place of copies is refused as it was found: it is not made, nor made a store
// of, since a later look would find a store there.
func TestOperatorCommandsMakeNoStore(t *testing.T) {
	empty, notThere := t.TempDir(), filepath.Join(t.TempDir(), "copies")
	server := embedetcd.StartT(t)
	for _, place := range []string{empty, notThere} {
		for _, args := range [][]string{
			{"raise-epoch", "acme", "--etcd", server.Endpoints()[0], "--copies", place},
			{"raise-epoch", "--confirm-cluster", "--etcd", server.Endpoints()[0], "--copies", place},
		} {
			if out, err := run(t, args...); err == nil || !strings.Contains(err.Error(), place) {
				t.Errorf("%v: printed %s, %v", args, out, err)
			}
		}
	}
	for _, command := range []string{"list acme/t-00000000000000000000000000000001", "verify acme", "restore acme/t-00000000000000000000000000000001 --to x"} {
		if out, err := run(t, append(strings.Fields("copies "+command), "--copies", notThere)...); err == nil {
			t.Errorf("copies %s: printed %s", command, out)
		}
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("the empty directory holds %v (%v)", entries, err)
	}
	if _, err := os.Stat(notThere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made (%v)", err)
	}
	copies, err := copystore.New(memstore.New(), copystore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := copies.KnownIdentity(t.Context()); !errors.Is(err, copystore.ErrNotExist) {
		t.Errorf("an empty store is known as %q, %v", id, err)
	}
	made, err := copies.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if id, err := copies.KnownIdentity(t.Context()); err != nil || id != made {
		t.Errorf("the store %s is known as %q, %v", made, id, err)
	}
}
