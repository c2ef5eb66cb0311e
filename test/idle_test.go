//go:build linux

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ledgerFiles counts the descriptors that the replica has below its state directory.
func (r *replica) ledgerFiles() (n int) {
	r.t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.Contains(target, r.dir) && strings.Contains(target, "ledger.db") {
			n++
		}
	}
	return n
}

// Issue 6, 5: a replica closes the ledger of a tenant that nobody asks for and keeps the
// lease; later it gives that up as well. Whoever asks next notices neither.
func TestIdleTenants(t *testing.T) {
	f := newFleet(t)
	a := f.start("a", "--idle-close", "100ms", "--idle-handoff", "0")
	b := f.start("b", "--idle-close", "100ms", "--idle-handoff", "200ms")
	keys := numberedKeys(t, 2)
	resting, unused := keys[0], keys[1]

	a.must(201, "POST", tenantPath(resting)+"/events", note("one"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for a.ledgerFiles() > 0 {
		if !pause(ctx, 20*time.Millisecond) {
			t.Fatal("the ledger of an idle tenant stays open")
		}
	}
	if s := a.state(resting); !s.Held || s.Epoch != 1 {
		t.Errorf("an idle tenant is %+v", s)
	}
	var got ack
	a.must(201, "POST", tenantPath(resting)+"/events", note("two")).into(t, &got)
	if got.Seq != 2 || got.Epoch != 1 {
		t.Errorf("after a rest: %+v", got)
	}

	b.must(201, "POST", tenantPath(unused)+"/events", note("one"))
	b.eventually(patience, "GET", tenantPath(unused), nil, func(r reply) bool {
		var s tenantState
		return ok(r) && json.Unmarshal(r.body, &s) == nil && !s.Held
	})
	a.must(201, "POST", tenantPath(unused)+"/events", note("two")).into(t, &got)
	if got.Seq != 2 || got.Epoch != 2 {
		t.Errorf("after an idle handoff: %+v", got)
	}
}
