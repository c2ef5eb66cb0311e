package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// maxRefusal bounds how much of an owner's refusal is read.
const maxRefusal = 64 << 10

// A visit is what a request wants of a tenant.
type visit struct {
	key   coord.Key
	wants presence
	do    work
	reads bool        // do changes nothing
	epoch coord.Epoch // the least that the sender of a forwarded request will have; 0 for others
}

// answer takes a request to its tenant, here or at its owner, and answers it. A tenant
// that turns out to have moved is followed, as long as each owner that is asked has a
// newer epoch than the one before.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, op operation, v visit) {
	var refused *refusal // of the last owner
	var asked coord.Epoch
	for {
		var answer outcome
		var err error
		if refused == nil {
			err = s.recalled(r, v)
		}
		if err == nil {
			answer, err = s.perform(ctx, v)
		}
		var held *coord.LeaseHeldError
		switch {
		case errors.As(err, &held):
		case err != nil && statusOf(codeOf(err)) >= http.StatusInternalServerError:
			s.unanswered(w, r, refused, err)
			return
		case err != nil:
			s.fail(w, r, err)
			return
		default:
			s.acknowledge(w, r, answer)
			return
		}
		if refused != nil && held.Record.Epoch <= asked {
			refused.answer()
			return
		}
		asked = held.Record.Epoch
		if refused = s.elsewhere(ctx, w, r, op, held, refused); refused == nil {
			return
		}
	}
}

// perform finds the tenant and works on it. A request that was refused because the
// tenant is on its way is parked until it has arrived, here or elsewhere, but not for
// long: such work was refused and did nothing.
func (s *Server) perform(ctx context.Context, v visit) (outcome, error) {
	parked, cancel := s.parking(ctx)
	defer cancel()
	for {
		h, answer, err := s.attempt(ctx, v)
		if err == nil || !v.wants.parks() || !onItsWay(h, err) {
			return answer, err
		}
		if h.AwaitSettled(parked) != nil {
			return outcome{}, err
		}
	}
}

// attempt also returns the handle that the work was refused by, if there is one.
func (s *Server) attempt(ctx context.Context, v visit) (*router.Handle, outcome, error) {
	h, err := s.find(ctx, v.key, v.wants)
	if err != nil {
		return s.router.HandleOf(v.key), outcome{}, err
	}
	if h != nil && h.Epoch() < v.epoch {
		return h, outcome{}, &coord.Error{Code: coord.CodeLeaseLost, Key: v.key, Detail: fmt.Sprintf("the request was forwarded to epoch %d, and this replica has epoch %d", v.epoch, h.Epoch())}
	}
	answer, err := v.do(ctx, h)
	done := outcome{reply: answer}
	if h != nil && v.wants.parks() {
		done.confirm = func() error { return v.plain(h.Confirm()) }
	}
	return h, done, v.plain(err)
}

// plain is err, or of work that changes nothing the reason why its outcome would be unknown
// if it did: it was refused, and may be done again.
func (v visit) plain(err error) error {
	if unknown := (*coord.OutcomeUnknownError)(nil); v.reads && errors.As(err, &unknown) {
		return unknown.Cause
	}
	return err
}

// acknowledge sends the reply, unless the process was stopped since the work was done
// for so long that nobody may say any more that it was. As little as may be lies between
// that question and the wire.
func (s *Server) acknowledge(w http.ResponseWriter, r *http.Request, answer outcome) {
	body := encode(answer.body)
	if answer.epoch > 0 {
		setEpoch(w.Header(), answer.epoch)
	}
	if answer.confirm == nil {
		s.send(w, answer.status, body)
		return
	}
	s.prepareSending(w)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if err := answer.confirm(); err != nil {
		w.Header().Del("Content-Length")
		w.Header().Del(HeaderEpoch)
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(body) // a client that has gone needs no reply
	_ = http.NewResponseController(w).Flush()
}

// parking bounds how long a request is parked; what is left of its time is for work.
func (s *Server) parking(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.opts.ParkTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(answerReserve, left/10))
	}
	return context.WithTimeout(ctx, limit)
}

// opens is false for what gives a tenant up, whose error is the answer, and for
// what must not bring back a tenant that was just given up.
func (p presence) opens() bool { return p == openOrCreate || p == openExisting }

// parks is false for what gives a tenant up: that another is at it is the answer.
func (p presence) parks() bool { return p.opens() || p == heldHere }

// onItsWay reports whether err refused work because the tenant is being handed off or
// its tenure on h has ended.
func onItsWay(h *router.Handle, err error) bool {
	switch coord.CodeOf(err) {
	case coord.CodeDraining:
		return h != nil
	case coord.CodeHandleClosed, coord.CodeFenced:
		return h != nil && h.Err() != nil
	}
	return false
}

// refusal reads an owner's reply that may say that nothing was done because the tenant
// is not there. It returns nil if it says anything else, and the reply is as it was.
func (s *Server) refusal(w http.ResponseWriter, resp *http.Response) (passOn func()) {
	if resp.StatusCode != http.StatusServiceUnavailable {
		return nil
	}
	rest := resp.Body
	read, err := io.ReadAll(io.LimitReader(rest, maxRefusal))
	var p problem
	whole := err == nil && json.Unmarshal(read, &p) == nil
	switch p.Code {
	case coord.CodeLeaseHeld, coord.CodeHandleClosed, coord.CodeDraining, coord.CodeRouterClosed:
		if whole {
			return func() {
				resp.Body = io.NopCloser(bytes.NewReader(read))
				s.passOn(w, resp)
			}
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), rest}
	return nil
}
