package test

import (
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore/memstore"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/router"
)

// An owner whose lease etcd ends before its time, as a paused leader of etcd that goes on
// may, stops long before its next renewal.
func TestLeaseThatEndsEarly(t *testing.T) {
	const ttl = 3 * time.Minute // a renewal each minute
	etcd := embedetcd.StartT(t)
	leases, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: etcd.Endpoints(), Options: etcdlease.Options{RequestTimeout: patience / 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer leases.Close()
	r, err := router.New(router.Options{
		ReplicaID: "a", StateRoot: filepath.Join(t.TempDir(), "state"), Leases: leases, Copies: memstore.New(), LeaseTTL: ttl,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// The first may come before the router's watch stands.
	for range 20 {
		h, err := r.Open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Delete(t.Context(), etcdlease.DefaultPrefix+"owner/"+key.String()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-h.Done():
			if h.Check() == nil {
				t.Error("the gate is open")
			}
			return
		case <-time.After(3 * time.Second):
			if err := h.Abandon(t.Context()); err != nil && h.Err() == nil {
				t.Fatal(err)
			}
		}
	}
	t.Error("the owner went on")
}
