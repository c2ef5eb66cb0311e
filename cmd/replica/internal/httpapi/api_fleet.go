package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

const (
	defaultLeases = 100
	maxLeases     = 1000
)

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

type replicaBody struct {
	Replica    string `json:"replica"`
	Address    string `json:"address"`
	Version    string `json:"version"`
	Started    int64  `json:"started"` // ms
	Draining   bool   `json:"draining"`
	Tenants    int    `json:"tenants"`     // that are served
	MaxTenants int    `json:"max_tenants"` // 0: no cap
}

func (s *Server) describeReplica(w http.ResponseWriter, r *http.Request) {
	if err := noParameters(r); err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, http.StatusOK, replicaBody{
		Replica: s.replica, Address: s.opts.Address, Version: s.opts.Version, Started: s.started.UnixMilli(),
		Draining: s.draining.Load(), Tenants: s.router.OpenCount(), MaxTenants: s.opts.MaxTenants,
	})
}

// A tenureBody is a tenant as this replica holds it.
type tenureBody struct {
	Organization string         `json:"organization"`
	Tenant       string         `json:"tenant"`
	Epoch        coord.Epoch    `json:"epoch"`
	Revision     coord.Revision `json:"revision"`
	State        string         `json:"state"`
	Idle         bool           `json:"idle"` // serves, but has no connection open since nobody uses it
	RestoredFrom *copystore.Ref `json:"restored_from"`
}

func newTenureBody(h *router.Handle) tenureBody {
	return tenureBody{
		Organization: h.Key().Organization(), Tenant: h.Key().Tenant(),
		Epoch: h.Epoch(), Revision: h.Revision(), State: h.State().String(), Idle: h.Idle(), RestoredFrom: h.RestoredFrom(),
	}
}

func (s *Server) listTenants(w http.ResponseWriter, r *http.Request) {
	if err := noParameters(r); err != nil {
		s.fail(w, r, err)
		return
	}
	handles := s.router.Handles()
	tenants := make([]tenureBody, 0, len(handles))
	for _, h := range handles {
		tenants = append(tenants, newTenureBody(h))
	}
	s.write(w, http.StatusOK, struct {
		Tenants []tenureBody `json:"tenants"` // in opening order
	}{tenants})
}

// A recordBody is a lease as the lease store has it.
type recordBody struct {
	Organization string         `json:"organization"`
	Tenant       string         `json:"tenant"`
	Owner        string         `json:"owner"`
	Address      string         `json:"address"`
	Held         bool           `json:"held"`
	Epoch        coord.Epoch    `json:"epoch"`
	Revision     coord.Revision `json:"revision"`
	GrantedAt    int64          `json:"granted_at"`  // ms; of the latest grant; 0 if the store does not tell
	LeaseUntil   int64          `json:"lease_until"` // ms; as near as the store can tell
	ForgottenAt  coord.Epoch    `json:"forgotten_at"`
	Stuck        string         `json:"stuck,omitempty"` // why the lease looks as if nobody would end it; in lists only
}

func newRecordBody(r coord.Record) recordBody {
	return recordBody{
		Organization: r.Key.Organization(), Tenant: r.Key.Tenant(), Owner: r.Owner, Address: r.Address, Held: r.Held,
		Epoch: r.Epoch, Revision: r.Revision, GrantedAt: unixMilli(r.GrantedAt), LeaseUntil: unixMilli(r.LeaseUntil), ForgottenAt: r.ForgottenAt,
	}
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

type leasesBody struct {
	Leases []recordBody `json:"leases"`
	// Next is what to send as after for the rest; empty if there is none.
	Next string `json:"next,omitempty"`
}

func (s *Server) listLeases(w http.ResponseWriter, r *http.Request) {
	query, err := parameters(r.URL.Query(), "organization", "after", "limit")
	if err != nil {
		s.fail(w, r, err)
		return
	}
	limit, err := number(query, "limit", defaultLeases, 1, maxLeases)
	if err == nil && query.Get("after") != "" {
		_, err = coord.ParseKey(query.Get("after"))
	}
	if err == nil && query.Get("organization") != "" {
		err = coord.ValidateOrganization(query.Get("organization"))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	records, err := s.leases.List(r.Context(), query.Get("organization"), query.Get("after"), int(limit))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	stuck, err := s.inspect(r.Context(), records)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body := leasesBody{Leases: make([]recordBody, 0, len(records))}
	for _, record := range records {
		one := newRecordBody(record)
		one.Stuck = stuck[record.Key]
		body.Leases = append(body.Leases, one)
	}
	if len(records) == int(limit) {
		body.Next = records[len(records)-1].Key.String()
	}
	s.write(w, http.StatusOK, body)
}

// An inspector is a lease store that can tell which leases look stuck.
type inspector interface {
	// Inspect returns, by key, why records look as if nobody would end them.
	Inspect(ctx context.Context, records []coord.Record) (map[coord.Key]string, error)
}

func (s *Server) inspect(ctx context.Context, records []coord.Record) (map[coord.Key]string, error) {
	if i, ok := s.leases.(inspector); ok {
		return i.Inspect(ctx, records)
	}
	return nil, nil
}

// describeTenant says what the lease store knows and how the tenant stands here.
// It opens nothing and is never forwarded.
func (s *Server) describeTenant(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r)
	if err == nil {
		err = noParameters(r)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	record, known, err := s.leases.Read(r.Context(), key)
	if err == nil && !known {
		err = &coord.Error{Code: coord.CodeTenantUnknown, Key: key}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var here *tenureBody
	if h := s.router.HandleOf(key); h != nil {
		body := newTenureBody(h)
		here = &body
	}
	setEpoch(w.Header(), record.Epoch)
	s.write(w, http.StatusOK, struct {
		recordBody
		Here *tenureBody `json:"here"` // null if this replica does not hold the tenant
	}{newRecordBody(record), here})
}

// noParameters refuses queries and bodies of an endpoint that has none.
func noParameters(r *http.Request) error {
	if _, err := parameters(r.URL.Query()); err != nil {
		return err
	}
	return noBody(bodyOf(r))
}

func noBody(body []byte) error {
	if len(body) > 0 {
		return refuse(CodeRequestInvalid, "this endpoint takes no body")
	}
	return nil
}

// parameters refuses those that the endpoint does not have, and any that comes
// twice.
func parameters(query url.Values, names ...string) (url.Values, error) {
	for name, values := range query {
		if !slices.Contains(names, name) {
			return nil, refuse(CodeRequestInvalid, fmt.Sprintf("this endpoint takes %d query parameters %q, and one was sent that is not among them", len(names), names))
		}
		if len(values) > 1 {
			return nil, refuse(CodeRequestInvalid, "the query parameter "+name+" came more than once")
		}
	}
	return query, nil
}

// number reads a whole number from a parameter that may be left out.
func number(query url.Values, name string, missing, least, most int64) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, refuse(CodeRequestInvalid, fmt.Sprintf("the query parameter %s must be a whole number from %d to %d", name, least, most))
	}
	return n, nil
}
