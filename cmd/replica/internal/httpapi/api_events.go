package httpapi

import (
	"context"
	"encoding/json"
	"math"
	"net/http"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/ledger"
	"github.com/leaseholddb/leasehold/router"
)

const (
	defaultEvents = 100
	maxEvents     = 1000
	// eventsAtOnce are read before the size of the page is looked at again;
	// maxPageBytes is the size of payloads at which a page ends.
	eventsAtOnce = 50
	maxPageBytes = 8 << 20
)

// codeEventInvalid is the ledger's own code.
const codeEventInvalid = ledger.CodeEventInvalid

type appendBody struct {
	Actor     string          `json:"actor"`
	Kind      string          `json:"kind"`
	SubjectID string          `json:"subject_id"`
	Payload   json.RawMessage `json:"payload"`
	IdemKey   string          `json:"idem_key"`
}

type appendReply struct {
	Seq       int64       `json:"seq"`
	Epoch     coord.Epoch `json:"epoch"` // under which this reply was acknowledged
	Duplicate bool        `json:"duplicate"`
}

// prepareAppend answers 201 for a new event and 200 for one that was there.
func (s *Server) prepareAppend(in input) (work, error) {
	var want appendBody
	if err := in.decode(decode, &want); err != nil {
		return nil, err
	}
	event := ledger.Event{Actor: want.Actor, Kind: want.Kind, SubjectID: want.SubjectID, Payload: want.Payload, IdemKey: want.IdemKey}
	if err := event.Validate(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, h *router.Handle) (answer reply, err error) {
		err = h.Run(ctx, func(ctx context.Context, v *router.View) error {
			stored, duplicate, err := v.Ledger().Append(ctx, event)
			answer = reply{http.StatusCreated, h.Epoch(), appendReply{stored.Seq, h.Epoch(), duplicate}}
			if duplicate {
				answer.status = http.StatusOK
			}
			return err
		})
		return answer, err
	}, nil
}

type storedBody struct {
	Seq       int64           `json:"seq"`
	TenantID  string          `json:"tenant_id"`
	Time      int64           `json:"ts"` // ms
	Actor     string          `json:"actor"`
	Kind      string          `json:"kind"`
	SubjectID string          `json:"subject_id"`
	Payload   json.RawMessage `json:"payload"`
	IdemKey   string          `json:"idem_key"`
}

type eventsReply struct {
	Events []storedBody `json:"events"`
	// NextAfter is what to send as after for the rest. A page may be shorter than
	// the limit although there is more; an empty page is the end.
	NextAfter int64 `json:"next_after"`
}

func (s *Server) prepareEvents(in input) (work, error) {
	query, err := parameters(in.query, "after", "limit")
	if err != nil {
		return nil, err
	}
	if err := noBody(in.body); err != nil {
		return nil, err
	}
	after, err := number(query, "after", 0, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	limit, err := number(query, "limit", defaultEvents, 1, maxEvents)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, h *router.Handle) (answer reply, err error) {
		err = h.Run(ctx, func(ctx context.Context, v *router.View) error {
			page, err := readPage(ctx, v.Ledger(), after, int(limit))
			answer = reply{http.StatusOK, h.Epoch(), page}
			return err
		})
		return answer, err
	}, nil
}

// readPage reads up to limit events, fewer if they are large.
func readPage(ctx context.Context, l *ledger.Ledger, after int64, limit int) (eventsReply, error) {
	page := eventsReply{Events: []storedBody{}, NextAfter: after}
	for size := 0; len(page.Events) < limit && size < maxPageBytes; {
		events, err := l.Read(ctx, page.NextAfter, min(eventsAtOnce, limit-len(page.Events)))
		if err != nil || len(events) == 0 {
			return page, err
		}
		for _, e := range events {
			size += len(e.Payload)
			page.NextAfter = e.Seq
			page.Events = append(page.Events, storedBody{
				Seq: e.Seq, TenantID: e.TenantID, Time: e.Time.UnixMilli(), Actor: e.Actor, Kind: e.Kind,
				SubjectID: e.SubjectID, Payload: e.Payload, IdemKey: e.IdemKey,
			})
		}
	}
	return page, nil
}

// hasIdemKey reports whether an append has one effect however often it is made.
func hasIdemKey(body []byte) bool {
	var event struct {
		IdemKey string `json:"idem_key"`
	}
	return json.Unmarshal(body, &event) == nil && event.IdemKey != ""
}
