package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

// A planned move: the owner asks the successor to receive the tenant, by a request
// that lasts as long as the move. The successor first says that it is ready, then that
// it has opened the tenant. An owner that gives the move up, or dies, ends the request
// and with it the successor's wait.

const receiveSuffix = "/receive"

// registryEvery is how often an owner looks whether the successor that it waits for is
// still registered.
const registryEvery = time.Second

// A readyBody is the successor's first line.
type readyBody struct {
	Copy *copystore.Ref `json:"copy"` // what it has fetched; null if the tenant has no copy
}

// An arrivedBody is the second.
type arrivedBody struct {
	Epoch coord.Epoch `json:"epoch,omitempty"`
	Code  coord.Code  `json:"code,omitempty"` // why the tenant could not be opened
}

// receive prepares for a tenant that its owner is about to hand to this replica, and
// waits for it.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r)
	if err == nil {
		err = noParameters(r)
	}
	if err == nil && s.draining.Load() {
		err = &coord.Error{Code: coord.CodeRouterClosed, Key: key, Detail: "this replica is shutting down"}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.opts.TransferTimeout)
	defer cancel()
	newest, discard, err := s.router.Prewarm(ctx, key)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer discard()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	if !s.sendLine(w, readyBody{newest}) {
		return
	}
	var arrived arrivedBody
	if h, err := s.router.OpenWait(ctx, key); err != nil {
		arrived.Code = codeOf(err)
	} else {
		arrived.Epoch = h.Epoch()
	}
	s.sendLine(w, arrived)
}

func (s *Server) sendLine(w http.ResponseWriter, v any) bool {
	line, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("httpapi: encode a line: %w", err)) // plain data always encodes
	}
	return s.sendFrame(w, append(line, '\n'))
}

// handoffTo hands the tenant to the replica named to.
func (s *Server) handoffTo(ctx context.Context, in input, h *router.Handle, to string) (reply, error) {
	address, err := s.successor(ctx, to)
	if err != nil {
		return reply{}, err
	}
	var told *reception
	err = h.HandoffTo(ctx, func(ctx context.Context) (err error) {
		told, err = s.tell(ctx, in, to, address, h.Done())
		return err
	})
	if told != nil {
		defer told.end()
	}
	if err != nil {
		return reply{}, err
	}
	body := newPartedBody(h, true)
	body.To, body.NextEpoch = to, told.arrival()
	return reply{http.StatusOK, h.Epoch(), body}, nil
}

// successor looks the replica up.
func (s *Server) successor(ctx context.Context, id string) (address string, err error) {
	if id == s.replica {
		return "", refuse(CodeRequestInvalid, "this replica has the tenant already")
	}
	if s.opts.Peers == nil {
		return "", refuse(CodeReplicaUnknown, "this replica knows no others")
	}
	address, known, err := s.opts.Peers(ctx, id)
	if err == nil && !known {
		err = refuse(CodeReplicaUnknown, "no replica of that id is registered; GET /v1/replica of a replica says its id")
	}
	return address, err
}

// A reception is the successor's half of a move, as the owner sees it.
type reception struct {
	body   io.ReadCloser
	lines  *json.Decoder
	cancel context.CancelFunc
}

func (c *reception) end() {
	c.cancel()
	_ = c.body.Close()
}

// arrival waits until the successor has opened the tenant and returns its epoch, 0 if
// it has not.
func (c *reception) arrival() coord.Epoch {
	var arrived arrivedBody
	if err := c.lines.Decode(&arrived); err != nil {
		return 0
	}
	return arrived.Epoch
}

// tell asks the successor to receive the tenant and returns once it is ready. It gives up
// when the successor is no longer registered, as one that was stopped, or when the tenant
// has gone another way.
func (s *Server) tell(ctx context.Context, in input, to, address string, gone <-chan struct{}) (*reception, error) {
	target, err := s.targetOf(coord.Record{Key: in.key, Address: address}, operation{suffix: receiveSuffix}, in.request)
	if err != nil {
		return nil, unready(to, "it left no address", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.abandonIfGone(ctx, cancel, to, gone)()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
	if err != nil {
		cancel()
		return nil, unready(to, "it left no usable address", err)
	}
	request.Header = s.forwardedHeader(ctx, in.request.Header)
	request.Header.Del("Content-Type")
	resp, err := s.forward.transport.RoundTrip(request)
	if err != nil {
		cancel()
		return nil, unready(to, "it cannot be reached", err)
	}
	c := &reception{resp.Body, json.NewDecoder(io.LimitReader(resp.Body, maxRefusal)), cancel}
	var problem problem
	if resp.StatusCode != http.StatusOK {
		err = c.lines.Decode(&problem)
		c.end()
		return nil, unready(to, "it answered "+resp.Status+" "+string(problem.Code), err)
	}
	var ready readyBody
	if err := c.lines.Decode(&ready); err != nil {
		c.end()
		return nil, unready(to, "it broke off while it fetched the newest copy", err)
	}
	return c, nil
}

// abandonIfGone cancels a move whose successor or tenant has gone, until stop is called.
func (s *Server) abandonIfGone(ctx context.Context, cancel context.CancelFunc, to string, gone <-chan struct{}) (stop func()) {
	over, joined := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(joined)
		tick := time.NewTicker(registryEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-gone:
				cancel()
				return
			case <-tick.C:
				if _, known, err := s.opts.Peers(ctx, to); err == nil && !known {
					cancel()
					return
				}
			}
		}
	}()
	return func() { close(over); <-joined }
}

func unready(to, why string, err error) error {
	return &coord.Error{Code: CodeSuccessorUnready, Detail: "the tenant stays here: " + to + " was told of the move, and " + why, Err: err}
}
