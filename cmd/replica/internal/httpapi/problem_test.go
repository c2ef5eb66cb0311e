package httpapi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
)

// The statuses of the API, code by code.
var wantStatus = map[coord.Code]int{
	coord.CodeIDInvalid:             400,
	codeEventInvalid:                400,
	CodeRequestInvalid:              400,
	coord.CodeSQLRefused:            403,
	CodeCrossOrigin:                 403,
	CodeForbidden:                   403,
	CodeUnauthenticated:             401,
	coord.CodeTenantUnknown:         404,
	CodeNotFound:                    404,
	CodeReplicaUnknown:              404,
	CodeMethodNotAllowed:            405,
	CodeBodyTimeout:                 408,
	coord.CodeLeaseHeld:             409,
	coord.CodeIdempotencyConflict:   409,
	CodeTenantNotOpen:               409,
	CodeBodyTooLarge:                413,
	CodeSQLFailed:                   422,
	coord.CodeLedgerFull:            507,
	coord.CodeDraining:              503,
	coord.CodeDrainTimeout:          503,
	coord.CodeFenced:                503,
	coord.CodeLeaseLost:             503,
	coord.CodeHandleClosed:          503,
	coord.CodeOutcomeUnknown:        503,
	coord.CodeLedgerBusy:            503,
	coord.CodeLedgerNewer:           503, // another replica may know the schema
	coord.CodeAtCapacity:            503,
	coord.CodeRouterClosed:          503,
	coord.CodeLeaseStoreUnavailable: 503,
	coord.CodeCopyStoreUnavailable:  503,
	coord.CodeLedgerGone:            503, // the next open starts from the newest copy
	coord.CodeLedgerDamaged:         503, // so it does
	coord.CodeResourcesExhausted:    503,
	CodeOwnerUnreachable:            503,
	CodeSuccessorUnready:            503,
	CodeTooManyStreams:              503,
	CodeTimeout:                     503,
	coord.CodeRestoreInvalid:        500,
	coord.CodeCopyConflict:          500,
	coord.CodeEpochRolledBack:       500,
	coord.CodeLedgerInvalid:         500,
	coord.CodeTTLInvalid:            500, // no client chooses a TTL or options
	coord.CodeOptionsInvalid:        500,
	CodeInternal:                    500,
}

func TestTranslateEveryCode(t *testing.T) {
	for code, want := range wantStatus {
		p := translate(fmt.Errorf("wrapped: %w", &coord.Error{Code: code, Detail: "d"}))
		if p.Status != want || p.Code != code || p.Type == "" || p.Title == "" || p.Detail == "" {
			t.Errorf("%s became %+v, want status %d", code, p, want)
		}
	}
	for _, code := range declaredCodes(t, "../../../../coord/errors.go", "problem.go") {
		if _, listed := wantStatus[code]; !listed {
			t.Errorf("%s has no status in the table", code)
		}
	}
}

// declaredCodes reads the codes out of the source, so that a new one without a
// decision about its status is noticed.
func declaredCodes(t *testing.T, files ...string) (codes []coord.Code) {
	t.Helper()
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || len(spec.Names[0].Name) < 5 || spec.Names[0].Name[:4] != "Code" {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, coord.Code(text))
			}
			return true
		})
	}
	if len(codes) < 20 {
		t.Fatalf("found only %d codes", len(codes))
	}
	return codes
}

func TestTranslateDetails(t *testing.T) {
	key, err := coord.NewKey("acme", "t-860cead4b9aab8577b5f03fdeff1ead1")
	if err != nil {
		t.Fatal(err)
	}
	held := &coord.LeaseHeldError{Record: coord.Record{Key: key, Owner: "b", Epoch: 7, Address: "http://b"}}
	if p := translate(held); p.Status != 409 || p.Owner != "b" || p.Address != "http://b" || p.Epoch != 7 {
		t.Errorf("held: %+v", p)
	}
	if p := translate(&elsewhereError{held, http.StatusMisdirectedRequest, "why"}); p.Status != 421 || p.Code != coord.CodeLeaseHeld || p.Owner != "b" {
		t.Errorf("elsewhere: %+v", p)
	}
	if p := translate(&coord.DrainTimeoutError{Key: key, InFlight: 3}); p.InFlight != 3 {
		t.Errorf("drain: %+v", p)
	}
	if p := translate(&coord.RestoreInvalidError{Key: key, Skipped: []coord.SkippedCopy{{Epoch: 1, Seq: 2, Reason: "r"}}}); len(p.Skipped) != 1 {
		t.Errorf("restore: %+v", p)
	}
	// A write that may have been applied is never reported as refused.
	if p := translate(&coord.OutcomeUnknownError{Cause: &coord.FencedError{Key: key, Reason: coord.FenceExpired}}); p.Code != coord.CodeOutcomeUnknown {
		t.Errorf("unknown outcome: %+v", p)
	}
	if p := translate(fmt.Errorf("x: %w", context.DeadlineExceeded)); p.Code != CodeTimeout || p.Status != 503 {
		t.Errorf("deadline: %+v", p)
	}
	if p := translate(errors.New("open /secret/path: no")); p.Code != CodeInternal || p.Detail == "" || p.Detail == "open /secret/path: no" {
		t.Errorf("an error without a code: %+v", p)
	}
}
