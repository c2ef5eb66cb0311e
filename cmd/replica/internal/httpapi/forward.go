package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// dialTimeout is short: the owner is on a network of ours, and a client waits.
	dialTimeout = 2 * time.Second
	// idlePerOwner connections stay open to each owner.
	idlePerOwner = 32
	idleTimeout  = 90 * time.Second
	// answerReserve is what is left of a request's time to say that the owner did
	// not answer; a short request keeps a tenth of its time instead.
	answerReserve = time.Second
)

// The outcomes of a forward, as the metric names them.
const (
	forwardAnswered    = "answered"
	forwardUnreachable = "unreachable"
	forwardLost        = "reply_lost"
)

// A forwarder keeps the connections to other replicas, and knows which of them do not
// answer.
type forwarder struct {
	transport *http.Transport
	vigil     *vigil
}

func newForwarder(secure *tls.Config) *forwarder {
	transport := &http.Transport{
		Proxy:               nil, // owners are reached directly or not at all
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: dialTimeout,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: idlePerOwner,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true, // what the owner sent is passed on as it is
	}
	return &forwarder{transport, newVigil(transport)}
}

func (f *forwarder) close() {
	f.vigil.close()
	f.transport.CloseIdleConnections()
}

// A refusal is what an owner that was asked left unanswered.
type refusal struct {
	answer  func() // answers with it
	unclear bool   // the owner may have done the work all the same
}

// elsewhere answers a request for a tenant that another replica holds: it says
// who, or asks the owner. If the owner did nothing because the tenant is not there, the
// request is not answered yet, and what is returned passes that on. before is what the
// owner that was asked before this one left.
func (s *Server) elsewhere(ctx context.Context, w http.ResponseWriter, r *http.Request, op operation, held *coord.LeaseHeldError, before *refusal) *refusal {
	owner := held.Record
	switch {
	case r.Header.Get(HeaderForward) == ForwardNever:
		s.fail(w, r, &elsewhereError{held, http.StatusMisdirectedRequest, "the request asked not to be forwarded"})
	case r.Header.Get(HeaderForwarded) != "":
		s.fail(w, r, &elsewhereError{held, http.StatusServiceUnavailable, "the tenant moved while the request was forwarded"})
	case owner.Owner == s.replica || owner.Address == s.opts.Address:
		// An earlier incarnation at this address, or a grant of our own that is
		// being given back: nobody serves the tenant until the lease has ended.
		s.fail(w, r, &elsewhereError{held, http.StatusServiceUnavailable, "the owner is gone and its lease has not ended yet"})
	default:
		target, err := s.targetOf(owner, op, r)
		if err != nil {
			s.unanswered(w, r, before, &elsewhereError{held, http.StatusConflict, err.Error()})
			return nil
		}
		setEpoch(w.Header(), owner.Epoch)
		if s.forward.vigil.isKnownSilent(owner) {
			s.monitor.metrics.forwarded(forwardUnreachable)
			s.unanswered(w, r, before, &coord.Error{Code: CodeOwnerUnreachable, Detail: owner.Owner + " owns the tenant and did not answer a moment ago, so it was not asked"})
			return nil
		}
		return s.ask(ctx, w, r, op, owner, target, before)
	}
	return nil
}

// targetOf builds the owner's URL from what the lease store said, the checked key
// and the route; of the client's URL only the query goes into it.
func (s *Server) targetOf(owner coord.Record, op operation, r *http.Request) (string, error) {
	base, err := url.Parse(owner.Address)
	if err != nil || base.Scheme != s.peerScheme() || base.Host == "" {
		return "", errors.New("the owner left no address that requests could be forwarded to")
	}
	target := url.URL{
		Scheme:   base.Scheme,
		Host:     base.Host,
		Path:     organizations + owner.Key.Organization() + "/tenants/" + owner.Key.Tenant() + op.suffix,
		RawQuery: r.URL.RawQuery,
	}
	return target.String(), nil
}

// unanswered fails the request, unless the owner that was asked before may have done the
// work: then nothing that comes after says that it was not done.
func (s *Server) unanswered(w http.ResponseWriter, r *http.Request, before *refusal, err error) {
	if before != nil && before.unclear {
		before.answer()
		return
	}
	s.fail(w, r, err)
}

// ask forwards the request and passes the reply on, unless it is a refusal.
func (s *Server) ask(ctx context.Context, w http.ResponseWriter, r *http.Request, op operation, owner coord.Record, target string, before *refusal) *refusal {
	ctx, cancel := context.WithTimeout(ctx, s.ownerShare(ctx, op))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	request, err := http.NewRequestWithContext(ctx, op.method, target, bytes.NewReader(bodyOf(r)))
	if err != nil {
		s.unanswered(w, r, before, fmt.Errorf("forward: %w", err))
		return nil
	}
	request.Header = s.forwardedHeader(ctx, r.Header)
	setEpoch(request.Header, owner.Epoch)
	unattended := s.forward.vigil.attend(ctx, giveUp, owner)
	resp, err := s.forward.transport.RoundTrip(request)
	unattended()
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		s.owners.forget(owner.Key)
	} else {
		s.owners.remember(owner)
	}
	if err != nil {
		return s.noReply(w, r, op, owner, err, before)
	}
	defer resp.Body.Close()
	s.monitor.metrics.forwarded(forwardAnswered)
	unclear := before != nil && before.unclear
	var passOn func()
	if op.wants.opens() {
		passOn = s.refusal(w, resp)
	}
	switch {
	case passOn != nil && unclear:
		return before
	case passOn != nil:
		return &refusal{answer: passOn}
	case resp.StatusCode >= http.StatusInternalServerError && unclear:
		before.answer()
	default:
		s.passOn(w, resp)
	}
	return nil
}

// noReply is for an owner that sent nothing.
func (s *Server) noReply(w http.ResponseWriter, r *http.Request, op operation, owner coord.Record, err error, before *refusal) *refusal {
	if timeout := net.Error(nil); neverSent(err) && errors.As(err, &timeout) && timeout.Timeout() {
		s.forward.vigil.note(owner.Owner)
	}
	outcome, problem := forwardProblem(op, owner.Owner, err)
	s.monitor.metrics.forwarded(outcome)
	again := outcome == forwardUnreachable || op.reads || op.repeats != nil && op.repeats(bodyOf(r))
	if !again || !op.wants.opens() {
		s.unanswered(w, r, before, problem)
		return nil
	}
	if before != nil && before.unclear {
		return before
	}
	// It may have handed the tenant off before it went.
	return &refusal{func() { s.fail(w, r, problem) }, outcome == forwardLost && !op.reads}
}

// forwardedTo returns the epoch that the sender of a forwarded request addressed it to.
func forwardedTo(r *http.Request) (coord.Epoch, error) {
	text := r.Header.Get(HeaderEpoch)
	if text == "" || r.Header.Get(HeaderForwarded) == "" {
		return 0, nil
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil || epoch == 0 {
		return 0, refuse(CodeRequestInvalid, HeaderEpoch+" must be a positive number")
	}
	return coord.Epoch(epoch), nil
}

// passOn copies the owner's reply. One that breaks off half-way breaks off for
// the client too: it must not look complete.
func (s *Server) passOn(w http.ResponseWriter, resp *http.Response) {
	h := w.Header()
	for name, values := range endToEnd(resp.Header) {
		h[name] = values
	}
	s.limitWriting(w)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// ownerShare is the time the owner gets out of what is left. An owner that is
// stopped or cut off must not use up all of it: soon its lease ends, and another
// attempt finds the next owner.
func (s *Server) ownerShare(ctx context.Context, op operation) time.Duration {
	deadline, _ := ctx.Deadline() // tenantHandler sets one
	left := time.Until(deadline)
	share := left - min(answerReserve, left/10)
	if op.transfers {
		return share
	}
	return min(share, s.opts.ForwardTimeout)
}

// forwardProblem tells an owner that cannot have received the request from one
// that may have acted on it.
func forwardProblem(op operation, owner string, err error) (outcome string, problem error) {
	if neverSent(err) {
		return forwardUnreachable, &coord.Error{Code: CodeOwnerUnreachable, Detail: owner + " owns the tenant and cannot be reached", Err: err}
	}
	if op.reads {
		return forwardLost, &coord.Error{Code: CodeOwnerUnreachable, Detail: owner + " owns the tenant and did not answer", Err: err}
	}
	return forwardLost, &coord.Error{Code: coord.CodeOutcomeUnknown, Detail: owner + " owns the tenant and may have received the request, but no answer came", Err: err}
}

// neverSent reports whether err came before the first byte of the request: nobody was
// there, or it was not who it should be.
func neverSent(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	_, stranger := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return stranger || noTLS
}

// forwardedHeader is the client's header without what concerns only its own
// connection, marked and with the time that is left.
func (s *Server) forwardedHeader(ctx context.Context, from http.Header) http.Header {
	h := endToEnd(from)
	// The browser's statements about origin were judged here, against this host.
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Expect", "Content-Length", HeaderForward, HeaderEpoch} {
		h.Del(name)
	}
	deadline, _ := ctx.Deadline()
	h.Set(HeaderTimeout, strconv.FormatInt(max(1, time.Until(deadline).Milliseconds()), 10))
	h.Set(HeaderForwarded, s.replica)
	s.introduce(h)
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "") // or net/http would make one up
	}
	return h
}

// hopByHop are the headers that belong to one connection.
var hopByHop = [...]string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns a copy of h without hop-by-hop headers, those that Connection
// names included.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			out.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}
