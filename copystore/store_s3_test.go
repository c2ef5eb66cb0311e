//go:build s3

package copystore_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/blobstore"
)

// bucketURL names a prefix that is empty and nobody else's.
func bucketURL() string {
	bucket, parameters, _ := strings.Cut(os.Getenv("LEASEHOLD_TEST_S3"), "?")
	return bucket + "/" + strings.ToLower(rand.Text()) + "?" + parameters
}

// newStore gives each test a prefix of its own in the bucket that make s3test
// provides, and empties it at the end.
func newStore(t testing.TB) copystore.Store {
	s, err := blobstore.Open(context.Background(), bucketURL(), blobstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var emptying sync.WaitGroup
		for o, err := range s.List(context.Background(), "") {
			if err != nil {
				t.Error(err)
				break
			}
			emptying.Go(func() {
				if err := s.Delete(context.Background(), o.Name); err != nil {
					t.Error(err)
				}
			})
		}
		emptying.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// stride is the distance between the steps at which owners are stopped and store
// calls fail: every call takes milliseconds here.
const stride = 3
