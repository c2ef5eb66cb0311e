package copystore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/memstore"
)

func TestStoreHasOneIdentity(t *testing.T) {
	store := memstore.New()
	var mu sync.Mutex
	ids := make(map[string]bool)
	var wg sync.WaitGroup
	for range 8 {
		copies, err := copystore.New(store, copystore.Options{})
		must(t, err)
		wg.Go(func() {
			id, err := copies.Identity(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[id] = true
		})
	}
	wg.Wait()
	if len(ids) != 1 || ids[""] {
		t.Errorf("one store has the identities %v", ids)
	}
}

func TestDamagedIdentityIsNoIdentity(t *testing.T) {
	for _, text := range []string{"", "{}", `{"format":1,"id":"x"}`} {
		store := memstore.New()
		must(t, store.Create(t.Context(), "store-id.json", strings.NewReader(text), int64(len(text))))
		copies, err := copystore.New(store, copystore.Options{})
		must(t, err)
		if id, err := copies.Identity(t.Context()); !errors.Is(err, coord.CodeCopyConflict) {
			t.Errorf("%q is taken for %q, %v", text, id, err)
		}
	}
}
