package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

// CP-7, trap 49, issue 5 e: of soakCopies copies that are made under 500 commits a
// second, each holds every event acknowledged before it began and passes all checks.
func TestCopiesUnderConstantWrites(t *testing.T) {
	store, err := dirstore.New(t.TempDir(), dirstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r, err := router.New(router.Options{
		ReplicaID: "a", StateRoot: t.TempDir(), Leases: memlease.New(coord.SystemClock()), Copies: store,
		LeaseTTL: coord.MaxTTL, KeepCopies: soakCopies + 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	h, err := r.Open(t.Context(), key(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	writing.Go(func() {
		for tick := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			n := acknowledged.Load() + 1
			if err := add(context.Background(), h, fmt.Sprint(n)); err != nil {
				t.Errorf("write beside a copy: %v", err)
				return
			}
			acknowledged.Store(n)
		}
	})
	copies, err := copystore.New(store, copystore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	defer func() {
		t.Logf("%d copies beside %d commits in %v", soakCopies, acknowledged.Load(), time.Since(began))
	}()
	for range soakCopies {
		before := acknowledged.Load()
		manifest, err := h.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checkCopy(t, copies, h.Key(), manifest, before)
	}
}

// checkCopy extracts a copy, which verifies it, and looks for the first events.
func checkCopy(t *testing.T, copies *copystore.Copies, key coord.Key, m copystore.Manifest, before int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.db")
	_, err := copies.Extract(t.Context(), key, m.Ref(), copystore.ExtractRequest{
		Path: path,
		Verify: func(ctx context.Context, path string) (int64, error) {
			info, err := ledger.Verify(ctx, path, key)
			return info.Events, err
		},
	})
	if err != nil {
		t.Fatalf("copy %s: %v", m.Ref(), err)
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var held int64
	if err := db.QueryRow("SELECT count(*) FROM events WHERE seq <= ?", before).Scan(&held); err != nil || held != before {
		t.Errorf("copy %s holds %d of the %d events acknowledged before it (%v)", m.Ref(), held, before, err)
	}
}
