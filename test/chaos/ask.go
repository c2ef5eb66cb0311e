//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// An answer is a whole reply of a replica.
type answer struct {
	status  int
	replica string
	epoch   coord.Epoch
	body    []byte
}

// ask sends one request. An error means that no whole answer came.
func (f *fleet) ask(ctx context.Context, n *node, method, path string, body any) (answer, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, replica: resp.Header.Get("Leasehold-Replica"), body: text}
	if epoch := resp.Header.Get("Leasehold-Epoch"); epoch != "" {
		number, err := strconv.ParseUint(epoch, 10, 64)
		if err != nil {
			return answer{}, fmt.Errorf("the reply's epoch: %w", err)
		}
		a.epoch = coord.Epoch(number)
	}
	return a, nil
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// harmless reports whether a code is documented to mean that nothing was changed. The checks
// hold the product to it: what was refused like this must never be read.
func harmless(code coord.Code) bool {
	switch code {
	case coord.CodeFenced, coord.CodeDraining, coord.CodeLeaseHeld, coord.CodeLedgerFull, coord.CodeLedgerBusy, coord.CodeAtCapacity,
		coord.CodeTenantUnknown, "OWNER_UNREACHABLE", "TENANT_NOT_OPEN", "SQL_FAILED":
		return true
	}
	return false
}

// outcome is what a client knows after an answer, or after none.
func outcome(a answer, err error) history.Event {
	if err != nil {
		return history.Event{Outcome: history.Unknown, Code: "NO_ANSWER"}
	}
	if a.ok() {
		return history.Event{Outcome: history.OK, Epoch: a.epoch, Replica: a.replica}
	}
	var problem struct{ Code coord.Code }
	if json.Unmarshal(a.body, &problem) != nil || problem.Code == "" {
		return history.Event{Outcome: history.Unknown, Code: fmt.Sprintf("STATUS_%d", a.status)}
	}
	e := history.Event{Outcome: history.Unknown, Code: string(problem.Code)}
	if harmless(problem.Code) {
		e.Outcome = history.Failed
	}
	return e
}

func tenantPath(key coord.Key) string {
	return "/v1/organizations/" + key.Organization() + "/tenants/" + key.Tenant()
}
