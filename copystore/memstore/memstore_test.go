package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/copystore/copystoretest"
	"github.com/leaseholddb/leasehold/copystore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	copystoretest.Test(t, copystoretest.Subject{Store: memstore.New()})
}

func TestConformanceUnderPrefix(t *testing.T) {
	copystoretest.Test(t, copystoretest.Subject{Store: memstore.New(), Prefix: "a/b/"})
}
