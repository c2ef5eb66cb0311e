package etcdlease_test

import (
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// A password in an endpoint is refused, and not repeated where it would be logged.
func TestEndpointsHoldNoPassword(t *testing.T) {
	_, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: []string{"127.0.0.1:1", "http://user:secret@127.0.0.1:1"}})
	if coord.CodeOf(err) != coord.CodeOptionsInvalid || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "endpoint 2") {
		t.Errorf("got %v", err)
	}
}
