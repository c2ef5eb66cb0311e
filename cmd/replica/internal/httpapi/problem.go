package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
)

// The codes of problems that only a server has. All others are those of package
// coord and of the ledger.
const (
	CodeRequestInvalid   coord.Code = "REQUEST_INVALID"    // not what the endpoint takes
	CodeNotFound         coord.Code = "NOT_FOUND"          // no such endpoint
	CodeMethodNotAllowed coord.Code = "METHOD_NOT_ALLOWED" // the endpoint has other methods; see Allow
	CodeUnauthenticated  coord.Code = "UNAUTHENTICATED"    // no token, or none that is known
	CodeForbidden        coord.Code = "FORBIDDEN"          // the token does not reach this
	CodeCrossOrigin      coord.Code = "CROSS_ORIGIN"       // a web page of another origin made a browser send it
	CodeBodyTooLarge     coord.Code = "BODY_TOO_LARGE"     // more than the server reads
	CodeBodyTimeout      coord.Code = "BODY_TIMEOUT"       // the body did not arrive in time
	CodeSQLFailed        coord.Code = "SQL_FAILED"         // SQLite refused a statement; nothing was changed
	CodeTenantNotOpen    coord.Code = "TENANT_NOT_OPEN"    // nobody holds the tenant that should be given up or copied
	CodeOwnerUnreachable coord.Code = "OWNER_UNREACHABLE"  // the owner got no request, or only one that changes nothing
	CodeReplicaUnknown   coord.Code = "REPLICA_UNKNOWN"    // no replica of that id is registered
	CodeSuccessorUnready coord.Code = "SUCCESSOR_UNREADY"  // the replica that a tenant should go to could not prepare for it; nothing changed
	CodeTooManyStreams   coord.Code = "TOO_MANY_STREAMS"   // as many event streams are open as there may be
	CodeTimeout          coord.Code = "TIMEOUT"            // the request's time was up
	CodeInternal         coord.Code = "INTERNAL"           // a failure that has no code of its own
)

// The headers of this API.
const (
	HeaderReplica   = "Leasehold-Replica"   // in replies: the replica that did the work
	HeaderEpoch     = "Leasehold-Epoch"     // in replies: the tenant's epoch, where one is known; in forwarded requests: the owner's
	HeaderForward   = "Leasehold-Forward"   // in requests: [ForwardNever], or absent
	HeaderForwarded = "Leasehold-Forwarded" // in requests: the replica that forwarded it
	HeaderTimeout   = "Leasehold-Timeout"   // in requests: how long the sender waits, in milliseconds
	HeaderPeer      = "Leasehold-Peer"      // in forwarded requests: the token of the replica that forwarded it

	// ForwardNever asks for the owner's name instead of its reply.
	ForwardNever = "never"
)

// retryAfter is what a 503 tells the client to wait.
const retryAfter = "1"

// A problem is an error as a client sees it, after RFC 9457.
type problem struct {
	Type   string     `json:"type"`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail"`
	Code   coord.Code `json:"code"`

	Owner    string              `json:"owner,omitempty"`     // LEASE_HELD
	Address  string              `json:"address,omitempty"`   // LEASE_HELD: where the owner can be reached
	Epoch    coord.Epoch         `json:"epoch,omitempty"`     // LEASE_HELD
	InFlight int                 `json:"in_flight,omitempty"` // DRAIN_TIMEOUT
	Skipped  []coord.SkippedCopy `json:"skipped,omitempty"`   // RESTORE_INVALID
}

// An elsewhereError is a LEASE_HELD whose status the circumstances decide.
type elsewhereError struct {
	held   *coord.LeaseHeldError
	status int
	why    string
}

func (e *elsewhereError) Error() string { return e.held.Error() + ": " + e.why }
func (e *elsewhereError) Unwrap() error { return e.held }

func refuse(code coord.Code, detail string) error {
	return &coord.Error{Code: code, Detail: detail}
}

// translate is the only place where an error becomes a problem.
func translate(err error) problem {
	code := codeOf(err)
	p := problem{
		Type:   "urn:leasehold:problem:" + string(code),
		Title:  strings.ToLower(strings.ReplaceAll(string(code), "_", " ")),
		Status: statusOf(code),
		Detail: err.Error(),
		Code:   code,
	}
	var (
		held      *coord.LeaseHeldError
		elsewhere *elsewhereError
		timeout   *coord.DrainTimeoutError
		invalid   *coord.RestoreInvalidError
	)
	switch {
	case code == CodeInternal:
		// What has no code was written for the log, not for clients.
		p.Detail = "the request failed; the replica's log says why"
	case errors.As(err, &held):
		p.Owner, p.Address, p.Epoch = held.Record.Owner, held.Record.Address, held.Record.Epoch
		if errors.As(err, &elsewhere) {
			p.Status = elsewhere.status
		}
	case errors.As(err, &timeout):
		p.InFlight = timeout.InFlight
	case errors.As(err, &invalid):
		p.Skipped = invalid.Skipped
	}
	return p
}

func codeOf(err error) coord.Code {
	if code := coord.CodeOf(err); code != "" {
		return code
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return CodeTimeout
	}
	return CodeInternal
}

// statusOf gives every code its HTTP status. Clients may retry a 503.
func statusOf(code coord.Code) int {
	switch code {
	case coord.CodeIDInvalid, codeEventInvalid, CodeRequestInvalid:
		return http.StatusBadRequest
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case coord.CodeSQLRefused, CodeCrossOrigin, CodeForbidden:
		return http.StatusForbidden
	case coord.CodeTenantUnknown, CodeNotFound, CodeReplicaUnknown:
		return http.StatusNotFound
	case CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case CodeBodyTimeout:
		return http.StatusRequestTimeout
	case coord.CodeLeaseHeld, coord.CodeIdempotencyConflict, CodeTenantNotOpen:
		return http.StatusConflict
	case CodeBodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeSQLFailed:
		return http.StatusUnprocessableEntity
	case coord.CodeLedgerFull:
		return http.StatusInsufficientStorage
	case coord.CodeDraining, coord.CodeDrainTimeout, coord.CodeFenced, coord.CodeLeaseLost, coord.CodeHandleClosed,
		coord.CodeOutcomeUnknown, coord.CodeLedgerBusy, coord.CodeLedgerNewer, coord.CodeAtCapacity, coord.CodeRouterClosed,
		coord.CodeLeaseStoreUnavailable, coord.CodeCopyStoreUnavailable, CodeOwnerUnreachable, CodeSuccessorUnready, CodeTooManyStreams, CodeTimeout,
		coord.CodeLedgerGone, coord.CodeLedgerDamaged, coord.CodeResourcesExhausted:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// fail answers with err's problem. What is nobody's fault but the replica's is
// logged, by route and tenant and never with what else the client sent.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := translate(err)
	if p.Status == http.StatusInternalServerError {
		s.logOf(r).Error("request failed", zap.String("code", string(p.Code)), zap.Error(err))
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter)
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		// The rest of the body is still to come and will not be read.
		h.Set("Connection", "close")
	}
	if p.Epoch > 0 {
		setEpoch(h, p.Epoch)
	}
	s.write(w, p.Status, p)
}

// logOf names the route, and the tenant if the path has a valid one.
func (s *Server) logOf(r *http.Request) *zap.Logger {
	log := s.log.With(zap.String("route", r.Pattern))
	if key, err := keyOf(r); err == nil {
		log = log.With(zap.Stringer("tenant", key))
	}
	return log
}

func setEpoch(h http.Header, epoch coord.Epoch) {
	h.Set(HeaderEpoch, strconv.FormatUint(uint64(epoch), 10))
}
