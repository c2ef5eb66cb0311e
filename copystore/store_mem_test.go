//go:build !s3

package copystore_test

import (
	"testing"

	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/memstore"
)

// newStore is what these tests run on: memory, or with the tag s3 the bucket that
// make s3test provides.
func newStore(testing.TB) copystore.Store { return memstore.New() }

// stride is the distance between the steps at which owners are stopped and store
// calls fail.
const stride = 1
