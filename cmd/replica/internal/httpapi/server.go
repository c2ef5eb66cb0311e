package httpapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// The defaults of [Options].
const (
	DefaultMaxBody         = 1 << 20
	DefaultBodyTimeout     = 10 * time.Second
	DefaultWriteTimeout    = 30 * time.Second
	DefaultRequestTimeout  = 30 * time.Second
	DefaultTransferTimeout = 3 * time.Minute
	DefaultForwardTimeout  = 10 * time.Second
	DefaultParkTimeout     = 5 * time.Second
	DefaultProbeGrace      = 10 * time.Second
)

// Leases is what the server needs of a lease store beyond what the router does.
type Leases interface {
	coord.LeaseStore
	// List returns at most limit records, in the order of their lease keys: of one
	// organization or, if it is empty, of all, and behind the lease key after.
	List(ctx context.Context, organization, after string, limit int) ([]coord.Record, error)
}

// Options configure a [Server]. Fields without a default are required.
type Options struct {
	Router  *router.Router
	Leases  Leases   // the store that Router acquires from
	Monitor *Monitor // the observer of Router's events
	// Address is the URL at which other replicas reach this one.
	Address string
	Version string
	// MaxTenants is reported only; 0 means that there is no cap.
	MaxTenants int

	// MaxBody is the greatest number of bytes in a request's body.
	MaxBody int64
	// BodyTimeout bounds the arrival of a request, from its header to the last
	// byte of its body.
	BodyTimeout time.Duration
	// WriteTimeout bounds how long a client takes to read a reply, or one event of
	// a stream.
	WriteTimeout time.Duration
	// RequestTimeout bounds the work of a request.
	RequestTimeout time.Duration
	// TransferTimeout bounds the work of a request that copies or gives up a
	// tenant, which may have to wait for a drain.
	TransferTimeout time.Duration
	// ForwardTimeout bounds how long the owner may take to answer a forwarded request
	// that is no transfer; about as long as a lease lasts.
	ForwardTimeout time.Duration

	// ParkTimeout bounds how long a request for a tenant that is just being handed off
	// waits for it instead of failing.
	ParkTimeout time.Duration

	// Peers finds a registered replica by its id; nil if this replica knows no others.
	Peers func(ctx context.Context, id string) (address string, known bool, err error)

	// Tokens returns who may do what, as it is at this moment. Without it nobody is
	// asked for a token, which is for a replica that only its own machine reaches.
	Tokens func() *access.Tokens
	// PeerToken returns the token by which other replicas know this one; it goes
	// with Tokens.
	PeerToken func() string
	// PeerTLS is how other replicas are reached; nil means without TLS. Requests
	// are forwarded to no replica that is reached otherwise.
	PeerTLS *tls.Config

	// CertificateEnds returns when the certificate that clients are shown is no longer
	// good; nil without TLS.
	CertificateEnds func() time.Time
	// StaleFiles returns how many files that say who may come in could not be read when
	// that was last tried, so that what they said before is in force; nil if there are none.
	StaleFiles func() int64

	// Probes decide about readiness, once one has failed for all of ProbeGrace.
	Probes     []Probe
	ProbeGrace time.Duration

	// Logger is silent while all is well; nil means no logs.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	fill := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	fill(&o.BodyTimeout, DefaultBodyTimeout)
	fill(&o.WriteTimeout, DefaultWriteTimeout)
	fill(&o.RequestTimeout, DefaultRequestTimeout)
	fill(&o.TransferTimeout, DefaultTransferTimeout)
	fill(&o.ForwardTimeout, DefaultForwardTimeout)
	fill(&o.ParkTimeout, DefaultParkTimeout)
	fill(&o.ProbeGrace, DefaultProbeGrace)
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

func (o Options) validate() error {
	var bad []string
	demand := func(ok bool, what string) {
		if !ok {
			bad = append(bad, what)
		}
	}
	demand(o.Router != nil, "Router is nil")
	demand(o.Leases != nil, "Leases is nil")
	demand(o.Monitor != nil, "Monitor is nil")
	demand(o.Address != "", "Address is empty")
	demand((o.Tokens == nil) == (o.PeerToken == nil), "Tokens and PeerToken go together")
	demand(o.MaxBody > 0, "MaxBody must be positive")
	demand(min(o.BodyTimeout, o.WriteTimeout, o.RequestTimeout, o.TransferTimeout, o.ForwardTimeout, o.ParkTimeout, o.ProbeGrace) > 0, "timeouts must be positive")
	if len(bad) > 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "http server", Detail: strings.Join(bad, "; ")}
	}
	return nil
}

// A Server is the handler of a replica's HTTP API. It is safe for concurrent use.
type Server struct {
	opts     Options
	router   *router.Router
	leases   Leases
	monitor  *Monitor
	log      *zap.Logger
	replica  string
	started  time.Time
	mux      *http.ServeMux
	origins  *http.CrossOriginProtection
	forward  *forwarder
	health   *health
	owners   owners
	beat     time.Duration // between comments on a stream
	draining atomic.Bool
}

// New returns the handler; it starts nothing. Options that are missing or out of
// range are refused together with [coord.CodeOptionsInvalid].
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, router: opts.Router, leases: opts.Leases, monitor: opts.Monitor, log: opts.Logger,
		replica: opts.Router.ReplicaID(),
		started: time.Now(),
		mux:     http.NewServeMux(),
		origins: http.NewCrossOriginProtection(),
		forward: newForwarder(opts.PeerTLS),
		beat:    streamHeartbeat,
		health:  newHealth(opts.Probes, opts.ProbeGrace, opts.Logger),
	}
	s.monitor.metrics.watch(s.router, s.ready)
	if opts.CertificateEnds != nil {
		s.monitor.metrics.watchCertificate(opts.CertificateEnds)
	}
	if opts.StaleFiles != nil {
		s.monitor.metrics.watchFiles(opts.StaleFiles)
	}
	s.route()
	return s, nil
}

// BeginDrain makes /readyz answer 503 from now on; nothing else changes. Call it
// before the router is closed, so that readiness is gone before the first refusal.
func (s *Server) BeginDrain() { s.draining.Store(true) }

// Close ends the event streams and the connections to other replicas. Requests
// that are still running end by themselves; the http.Server waits for them.
func (s *Server) Close() {
	s.monitor.hub.close()
	s.forward.close()
}

// A route is an endpoint: what it answers to, and to whom.
type route struct {
	pattern string
	who     audience
	handler http.Handler
}

func (s *Server) routes() []route {
	routes := []route{
		{"GET /livez", everybody, http.HandlerFunc(s.livez)},
		{"GET /readyz", everybody, http.HandlerFunc(s.readyz)},
		{"GET /metrics", operators, s.monitor.metrics.handler()},
		{"GET /v1/replica", operators, http.HandlerFunc(s.describeReplica)},
		{"GET /v1/tenants", operators, http.HandlerFunc(s.listTenants)},
		{"GET /v1/leases", operators, http.HandlerFunc(s.listLeases)},
		{"GET /v1/events", operators, http.HandlerFunc(s.streamEvents)},
		{"GET " + tenantPattern, theTenant, http.HandlerFunc(s.describeTenant)},
		{"POST " + tenantPattern + receiveSuffix, operators, http.HandlerFunc(s.receive)},
	}
	for _, op := range s.operations() {
		routes = append(routes, route{op.method + " " + tenantPattern + op.suffix, op.who, s.tenantHandler(op)})
	}
	return routes
}

func (s *Server) route() {
	for _, route := range s.routes() {
		s.mux.Handle(route.pattern, s.guarded(route))
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(HeaderReplica, s.replica)
	rec := &recorder{ResponseWriter: w}
	s.monitor.metrics.begin()
	defer func() {
		if p := recover(); p != nil {
			s.panicked(rec, r, p)
		}
		s.monitor.metrics.end(r.Pattern, rec.status)
	}()
	if r.Body != http.NoBody {
		// Set first: what a refusal leaves unread is bounded by it too. Writers of
		// tests have no deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
	if err := admit(r.URL.EscapedPath()); err != nil {
		s.fail(rec, r, err)
		return
	}
	if err := s.origins.Check(r); err != nil {
		s.fail(rec, r, refuse(CodeCrossOrigin, "requests that change something are not taken from web pages of other origins"))
		return
	}
	handler, pattern := s.mux.Handler(r)
	r.Pattern = pattern
	if pattern == "" {
		s.refuseUnrouted(rec, r, handler)
		return
	}
	s.mux.ServeHTTP(rec, r)
}

// guarded lets a request through to the route once it is known who sent it, and
// only then reads its body.
func (s *Server) guarded(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.authorize(route.who, r); err != nil {
			if r.Body != http.NoBody {
				w.Header().Set("Connection", "close") // or net/http would wait for the body
			}
			s.fail(w, r, err)
			return
		}
		body, err := s.readBody(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		route.handler.ServeHTTP(w, withBody(r, body))
	})
}

// panicked answers a request whose handler panicked, if it can still be answered.
func (s *Server) panicked(rec *recorder, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p) // how a reply is broken off on purpose
	}
	s.logOf(r).Error("handler panicked", zap.Any("panic", p), zap.Stack("stack"))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	s.fail(rec, r, fmt.Errorf("panic: %v", p))
}

type bodyKey struct{}

// withBody hands the body, which has been read, to the handler.
func withBody(r *http.Request, body []byte) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
}

func bodyOf(r *http.Request) []byte {
	body, _ := r.Context().Value(bodyKey{}).([]byte)
	return body
}

// A recorder remembers the status of a reply.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
