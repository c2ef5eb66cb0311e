package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

const tenantPattern = "/v1/organizations/{organization}/tenants/{tenant}"

// A presence says what an operation wants to find.
type presence int

const (
	openOrCreate presence = iota // opens a tenant that nobody holds, creating it if it is new
	openExisting                 // opens a tenant that nobody holds, but creates none
	heldOnly                     // makes no sense unless somebody holds the tenant
	heldHere                     // was sent here by a replica that believes this one to be the owner
	anywhere                     // finds the tenant itself
)

// An operation is one endpoint of a tenant.
type operation struct {
	method, suffix string
	wants          presence
	who            audience
	reads          bool // changes nothing, so that a lost reply leaves no doubt
	transfers      bool // may wait for a drain or an upload

	// repeats reports whether doing what body asks for twice is doing it once; nil if
	// only for what reads.
	repeats func(body []byte) bool

	// prepare checks the request. It touches nothing.
	prepare func(in input) (work, error)
}

// An input is what a client sent, whole.
type input struct {
	key     coord.Key
	body    []byte
	query   url.Values
	request *http.Request // for what is asked of other replicas on its behalf
}

// work does what was asked for, on an open handle; nil if the operation wants the
// tenant anywhere.
type work func(ctx context.Context, h *router.Handle) (reply, error)

// A reply is what goes back to the client.
type reply struct {
	status int
	epoch  coord.Epoch
	body   any
}

// An outcome is a reply that was not sent yet.
type outcome struct {
	reply
	confirm func() error // asked when nothing but the sending is left; nil if there is nothing to ask
}

// tenantHandler takes a request through the steps that the package comment names.
func (s *Server) tenantHandler(op operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := keyOf(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		timeout, err := s.timeout(r, op)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		epoch, err := forwardedTo(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		do, err := op.prepareFor(key, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		wants := op.wants
		if r.Header.Get(HeaderForwarded) != "" && wants.opens() {
			wants = heldHere
		}
		s.answer(ctx, w, r, op, visit{key: key, wants: wants, do: s.measured(op, do), reads: op.reads, epoch: epoch})
	})
}

func (op operation) prepareFor(key coord.Key, r *http.Request) (work, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(CodeRequestInvalid, "the query is not escaped correctly")
	}
	return op.prepare(input{key: key, body: bodyOf(r), query: query, request: r})
}

// timeout is the least of what the server and the client have patience for.
func (s *Server) timeout(r *http.Request, op operation) (time.Duration, error) {
	switch v := r.Header.Get(HeaderForward); v {
	case "", ForwardNever:
	default:
		return 0, refuse(CodeRequestInvalid, HeaderForward+" can only be "+ForwardNever)
	}
	limit := s.opts.RequestTimeout
	if op.transfers {
		limit = s.opts.TransferTimeout
	}
	text := r.Header.Get(HeaderTimeout)
	if text == "" {
		return limit, nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil || ms == 0 {
		return 0, refuse(CodeRequestInvalid, HeaderTimeout+" must be a positive number of milliseconds")
	}
	return min(limit, time.Duration(ms)*time.Millisecond), nil
}

// find returns the tenant's handle. It fails with a [*coord.LeaseHeldError] if
// another replica holds the tenant.
func (s *Server) find(ctx context.Context, key coord.Key, wants presence) (*router.Handle, error) {
	if wants == anywhere {
		return nil, nil
	}
	if h := s.router.HandleOf(key); h != nil {
		return h, nil
	}
	record, known, err := s.leases.Read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case record.Held && record.Owner != s.replica:
		return nil, &coord.LeaseHeldError{Record: record}
	case wants == openOrCreate, record.Held && wants != openExisting:
		// Held here without a handle: the opening is under way, and is joined.
		return s.router.Open(ctx, key)
	case wants == openExisting:
		return s.router.OpenExisting(ctx, key)
	case wants == heldHere:
		return nil, &coord.Error{Code: coord.CodeHandleClosed, Key: key, Detail: "the tenant was given up here while the request was forwarded"}
	case !known || record.Epoch <= record.ForgottenAt:
		return nil, &coord.Error{Code: coord.CodeTenantUnknown, Key: key}
	case s.router.AwaitSuccessor(ctx, key):
		return s.find(ctx, key, wants) // it was between two owners
	default:
		return nil, &coord.Error{Code: CodeTenantNotOpen, Key: key, Detail: "no replica holds it, so there is nothing to give up and nothing that is not copied"}
	}
}
