//go:build s3

package blobstore_test

import (
	"errors"
	"os"
	"testing"

	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/blobstore"
	"github.com/leaseholddb/leasehold/copystore/copystoretest"
)

// Issue 5 a: the conformance suite on the S3 server that make s3test starts.
func TestConformanceOnS3(t *testing.T) {
	for _, variant := range []string{"", "&checksum=when_required"} {
		t.Run("variant"+variant, func(t *testing.T) {
			s := open(t, os.Getenv("LEASEHOLD_TEST_S3")+variant)
			copystoretest.Test(t, copystoretest.Subject{Store: s, Prefix: "conformance/", Objects: 1200, BigSize: 23 << 20})
		})
	}
}

// Objects of two stores with prefixes, which are what two deployments are.
func TestPrefixesKeepStoresApart(t *testing.T) {
	a, b := openPrefix(t, "one/"), openPrefix(t, "two/deep/")
	if err := create(t.Context(), a, "o", "a"); err != nil {
		t.Fatal(err)
	}
	defer a.Delete(t.Context(), "o")
	if _, err := b.Open(t.Context(), "o"); !errors.Is(err, copystore.ErrNotExist) {
		t.Errorf("open gives %v", err)
	}
	for o, err := range b.List(t.Context(), "") {
		t.Errorf("listed %v, %v", o, err)
	}
}

func openPrefix(t *testing.T, prefix string) *blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(t.Context(), os.Getenv("LEASEHOLD_TEST_S3"), blobstore.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
