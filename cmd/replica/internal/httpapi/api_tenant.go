package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

// operations are the endpoints of a tenant that may have to run at its owner.
func (s *Server) operations() []operation {
	return []operation{
		{method: "POST", suffix: "/open", wants: openOrCreate, who: theTenant, prepare: s.prepareOpen},
		{method: "POST", suffix: "/events", wants: openOrCreate, who: theTenant, repeats: hasIdemKey, prepare: s.prepareAppend},
		{method: "GET", suffix: "/events", wants: openExisting, who: theTenant, reads: true, prepare: s.prepareEvents},
		{method: "POST", suffix: "/query", wants: openExisting, who: theTenant, reads: true, prepare: s.prepareQuery},
		{method: "POST", suffix: "/exec", wants: openOrCreate, who: theTenant, prepare: s.prepareExec},
		{method: "POST", suffix: "/snapshot", wants: heldOnly, who: theTenant, transfers: true, prepare: s.prepareSnapshot},
		{method: "POST", suffix: "/handoff", wants: heldOnly, who: operators, transfers: true, prepare: s.prepareHandoff},
		{method: "POST", suffix: "/abandon", wants: heldOnly, who: operators, transfers: true, prepare: s.prepareAbandon},
		{method: "DELETE", suffix: "", wants: anywhere, who: operators, transfers: true, prepare: s.prepareForget},
	}
}

type openBody struct {
	Organization string         `json:"organization"`
	Tenant       string         `json:"tenant"`
	Epoch        coord.Epoch    `json:"epoch"`
	Revision     coord.Revision `json:"revision"`
	Owner        string         `json:"owner"`
	RestoredFrom *copystore.Ref `json:"restored_from"` // null if the ledger was created new
}

func (s *Server) prepareOpen(in input) (work, error) {
	if err := in.isEmpty(); err != nil {
		return nil, err
	}
	return func(_ context.Context, h *router.Handle) (reply, error) {
		// A handle that cannot prove its lease is not open for anybody.
		if err := h.Check(); err != nil {
			return reply{}, err
		}
		return reply{http.StatusOK, h.Epoch(), openBody{
			Organization: h.Key().Organization(), Tenant: h.Key().Tenant(), Epoch: h.Epoch(), Revision: h.Revision(),
			Owner: s.replica, RestoredFrom: h.RestoredFrom(),
		}}, nil
	}, nil
}

func (s *Server) prepareSnapshot(in input) (work, error) {
	if err := in.isEmpty(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, h *router.Handle) (reply, error) {
		manifest, err := h.Snapshot(ctx)
		return reply{http.StatusOK, h.Epoch(), manifest}, err
	}, nil
}

// A partedBody says what was given up.
type partedBody struct {
	Organization string      `json:"organization"`
	Tenant       string      `json:"tenant"`
	Epoch        coord.Epoch `json:"epoch"`
	Flushed      bool        `json:"flushed"` // every acknowledged write is in a committed copy

	// Of a handoff to a replica by name: who that is, and at which epoch it has opened
	// the tenant. Without an epoch it has not, and whoever is asked next opens it.
	To        string      `json:"to,omitempty"`
	NextEpoch coord.Epoch `json:"next_epoch,omitempty"`
}

func newPartedBody(h *router.Handle, flushed bool) partedBody {
	return partedBody{Organization: h.Key().Organization(), Tenant: h.Key().Tenant(), Epoch: h.Epoch(), Flushed: flushed}
}

func (s *Server) prepareHandoff(in input) (work, error) {
	var want struct {
		To json.RawMessage `json:"to"`
	}
	if err := in.decode(decodeOptional, &want); err != nil {
		return nil, err
	}
	var to string
	if len(want.To) > 0 && (json.Unmarshal(want.To, &to) != nil || to == "") {
		// An id that a script failed to fill in must not hand the tenant to nobody.
		return nil, refuse(CodeRequestInvalid, `"to" must be the id of a replica; leave it out to hand the tenant to nobody in particular`)
	}
	return func(ctx context.Context, h *router.Handle) (reply, error) {
		if to != "" {
			return s.handoffTo(ctx, in, h, to)
		}
		err := h.Handoff(ctx)
		return reply{http.StatusOK, h.Epoch(), newPartedBody(h, true)}, err
	}, nil
}

func (s *Server) prepareAbandon(in input) (work, error) {
	if err := in.isEmpty(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, h *router.Handle) (reply, error) {
		err := h.Abandon(ctx)
		return reply{http.StatusOK, h.Epoch(), newPartedBody(h, false)}, err
	}, nil
}

type forgottenBody struct {
	DeletedObjects int         `json:"deleted_objects"`
	Floor          coord.Epoch `json:"floor"`
}

func (s *Server) prepareForget(in input) (work, error) {
	if err := in.isEmpty(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ *router.Handle) (reply, error) {
		done, err := s.router.Forget(ctx, in.key)
		return reply{http.StatusOK, done.Floor, forgottenBody{done.DeletedObjects, done.Floor}}, err
	}, nil
}

// decode refuses queries and decodes the body.
func (in input) decode(how func([]byte, any) error, v any) error {
	if _, err := parameters(in.query); err != nil {
		return err
	}
	return how(in.body, v)
}

// isEmpty takes no body or the empty object, and nothing else.
func (in input) isEmpty() error { return in.decode(decodeOptional, &struct{}{}) }
