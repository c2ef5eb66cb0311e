//go:build s3

package main

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// RE-1, RO-8: with copies in a bucket, a tenant outlives the state directory of the
// replica that wrote it.
func TestServeFromBucket(t *testing.T) {
	bucket, parameters, _ := strings.Cut(os.Getenv("LEASEHOLD_TEST_S3"), "?")
	copies := bucket + "/" + strings.ToLower(rand.Text()) + "?" + parameters
	first := freshConfig(t)
	first.Copies = copies
	etcd := first.StateDir
	r := startServing(t, first)
	if got := r.status("POST", demoPath+"/events", `{"actor":"a","kind":"k","subject_id":"s","payload":{},"idem_key":"i"}`); got != 201 {
		t.Fatalf("append: %d", got)
	}
	r.cancel()
	if err := r.wait(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if err := os.RemoveAll(etcd + "/orgs"); err != nil {
		t.Fatal(err)
	}
	again := startServing(t, first)
	// The retry of what the bucket alone remembers.
	if got := again.status("POST", demoPath+"/events", `{"actor":"a","kind":"k","subject_id":"s","payload":{},"idem_key":"i"}`); got != 200 {
		t.Errorf("the retry gives %d, want 200: the first answer once more", got)
	}
	if got := again.status("DELETE", demoPath, ""); got != 200 {
		t.Errorf("forget: %d", got)
	}
	again.cancel()
	if err := again.wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	// The store's own id outlives every tenant.
	store, closeStore, err := openCopyStore(t.Context(), copies, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore()
	if err := store.Delete(t.Context(), "store-id.json"); err != nil {
		t.Error(err)
	}
}
