package httpapi_test

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/router"
)

// A failure that the client is told nothing about is in the log with its cause, and with
// the tenant that it met.
func TestInternalFailureIsLoggedWithItsTenant(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	f := newFleet(t)
	a := f.node("a", func(o *httpapi.Options, _ *router.Options) { o.Logger = zap.New(core) })
	f.leases.afterRead(func() { panic("the cause") })
	p := a.refused(500, httpapi.CodeInternal, "POST", tenant+"/open", "")
	if strings.Contains(p.Detail, "cause") {
		t.Errorf("the client was told %q", p.Detail)
	}
	entries := logs.TakeAll()
	if len(entries) != 2 {
		t.Fatalf("%d lines, want those of the panic and of the answer", len(entries))
	}
	for _, e := range entries {
		fields := e.ContextMap()
		if fields["tenant"] != "acme/"+tenantID || fields["route"] != "POST /v1/organizations/{organization}/tenants/{tenant}/open" {
			t.Errorf("%q names %v", e.Message, fields)
		}
	}
	if cause := entries[1].ContextMap()["error"]; cause != "panic: the cause" {
		t.Errorf("logged the cause %q", cause)
	}
}
