package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/router"
)

const (
	// drainGrace is what closing the router may take beyond the drain timeout, so
	// that a drain which runs into it says so by itself.
	drainGrace = 5 * time.Second
	// hangUpTimeout bounds how long replies may take to be written after the last
	// tenant is gone.
	hangUpTimeout = 5 * time.Second

	// readinessLead is how long work goes on after readiness has turned, so that
	// whoever just found this replica ready is not refused.
	readinessLead = 250 * time.Millisecond

	// maxValue is the greatest value that a statement may make or read, in bytes: a
	// query of one row must not take the memory of all tenants.
	maxValue = 80 << 20

	headerTimeout  = 10 * time.Second
	keepAlive      = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// serve runs a replica until ctx ends or it cannot go on. It returns nil only if
// every tenant was handed off.
func serve(ctx context.Context, cfg *config, stdout, stderr io.Writer) error {
	if err := cfg.needCopies(); err != nil {
		return err
	}
	log := newLogger(stderr)
	r, err := start(ctx, cfg, log)
	if err != nil {
		return err
	}
	r.welcome(stdout)
	log.Info("serving", zap.String("replica", r.id), zap.String("listen", r.listener.Addr().String()),
		zap.String("advertise", r.address), zap.Strings("etcd", r.endpoints), zap.String("version", version()))
	cause := r.wait(ctx)
	return errors.Join(cause, r.stop())
}

// newLogger writes JSON lines.
func newLogger(w io.Writer) *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(enc), zapcore.Lock(zapcore.AddSync(w)), zapcore.InfoLevel))
}

// A replica is a process that serves. What it is made of is stopped in the
// reverse order in which it was started.
type replica struct {
	cfg *config
	log *zap.Logger
	id  string

	guard     *guard
	listener  net.Listener
	address   string // the URL that other replicas are given
	etcd      *embedetcd.Server
	endpoints []string
	leases    *etcdlease.Store
	copies    copystore.Store
	monitor   *httpapi.Monitor
	router    *router.Router
	api       *httpapi.Server
	broken    chan error // one slot: the HTTP server ended by itself

	stops []func() error
}

// start brings everything up, or leaves nothing behind. ctx bounds the start only.
func start(ctx context.Context, cfg *config, log *zap.Logger) (*replica, error) {
	r := &replica{cfg: cfg, log: log, id: cfg.Name + "-" + incarnation(), broken: make(chan error, 1)}
	// The listener is first: the address must be known before it is advertised, and
	// a taken port is noticed before anything else was touched.
	steps := []func(context.Context) error{r.lock, r.readGuard, r.listen, r.startEtcd, r.openLeases, r.openCopies, r.bindCopies, r.makeRouter, r.serveHTTP, r.register}
	for _, step := range steps {
		err := step(ctx)
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("interrupted while starting: %w", ctx.Err())
		}
		if err != nil {
			return nil, errors.Join(err, r.unwind())
		}
	}
	return r, nil
}

// incarnation is what tells this process from its former selves.
func incarnation() string {
	var b [5]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (r *replica) onStop(f func() error) { r.stops = append(r.stops, f) }

func (r *replica) unwind() error {
	var all []error
	for len(r.stops) > 0 {
		last := len(r.stops) - 1
		all = append(all, r.stops[last]())
		r.stops = r.stops[:last]
	}
	return errors.Join(all...)
}

func (r *replica) lock(context.Context) error {
	dir, err := lockStateDir(r.cfg.StateDir)
	if err != nil {
		return err
	}
	r.onStop(dir.Close)
	return nil
}

func (r *replica) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", r.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	r.onStop(func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil // the HTTP server has closed it
	})
	// A name was accepted for what it means; see what it means here.
	if addr, ok := l.Addr().(*net.TCPAddr); !r.cfg.guarded() && (!ok || !addr.IP.IsLoopback()) {
		return fmt.Errorf("listen: %s is not a loopback address: %s", l.Addr(), unguarded)
	}
	r.listener, r.address = l, r.cfg.Advertise
	if r.address == "" {
		r.address = r.cfg.scheme() + "://" + l.Addr().String()
	}
	return nil
}

func (r *replica) startEtcd(ctx context.Context) (err error) {
	if !r.cfg.embedded() {
		r.endpoints = r.cfg.Etcd
		return nil
	}
	var stop func() error
	if r.etcd, stop, err = startEtcd(ctx, r.cfg, r.log); err != nil {
		return err
	}
	r.endpoints = r.etcd.Endpoints()
	r.onStop(stop)
	return nil
}

func (r *replica) openLeases(ctx context.Context) (err error) {
	if r.leases, err = openLeases(ctx, r.cfg, r.endpoints, r.address, r.log.Named("leases")); err != nil {
		return err
	}
	r.onStop(r.leases.Close)
	return nil
}

func (r *replica) openCopies(ctx context.Context) error {
	copies, closeCopies, err := openCopyStore(ctx, r.cfg.copiesPlace(), r.log.Named("copies"))
	if err != nil {
		return err
	}
	r.copies = copies
	r.onStop(closeCopies)
	return nil
}

// bindCopies refuses copies that are not those of the other replicas on this etcd.
func (r *replica) bindCopies(ctx context.Context) error {
	copies, err := copystore.New(r.copies, copystore.Options{})
	if err != nil {
		return err
	}
	id, err := copies.Identity(ctx)
	if err != nil {
		return err
	}
	return r.leases.BindCopies(ctx, id)
}

// makeRouter makes router, API and what lies between them.
func (r *replica) makeRouter(context.Context) (err error) {
	r.monitor = httpapi.NewMonitor(version())
	r.router, err = router.New(router.Options{
		ReplicaID: r.id, StateRoot: r.cfg.StateDir, Leases: r.leases, Copies: r.copies,
		LeaseTTL: r.cfg.LeaseTTL, LeaseMargin: r.cfg.LeaseMargin,
		CopyConcurrency: r.cfg.CopyConcurrency, IdleClose: r.cfg.IdleClose, IdleHandoff: r.cfg.IdleHandoff,
		SnapshotEvery: r.cfg.SnapshotEvery, DrillEvery: r.cfg.DrillEvery, DrainTimeout: r.cfg.DrainTimeout, MinTenure: r.cfg.MinTenure,
		MaxTenants: r.cfg.MaxTenants, CloseConcurrency: r.cfg.CloseConcurrency, KeepCopies: r.cfg.KeepCopies,
		MaxValue: maxValue, Observer: r.monitor.Observe, Logger: r.log.Named("router"),
	})
	if err != nil {
		return err
	}
	r.onStop(func() error {
		_ = r.router.Close(context.Background()) // drain has closed it and has its result, or it holds nothing
		return nil
	})
	opts := httpapi.Options{
		Router: r.router, Leases: r.leases, Monitor: r.monitor,
		Address: r.address, Version: version(), MaxTenants: r.cfg.MaxTenants,
		BodyTimeout:     r.cfg.BodyTimeout,
		TransferTimeout: r.cfg.DrainTimeout + httpapi.DefaultTransferTimeout,
		ForwardTimeout:  r.cfg.LeaseTTL,
		ParkTimeout:     r.cfg.ParkTimeout,
		Peers:           r.peer,
		PeerTLS:         r.guard.peerTLS(),
		CertificateEnds: r.guard.certificateEnds(),
		StaleFiles:      r.guard.stale.Load,
		Probes:          r.probes(),
		ProbeGrace:      r.cfg.LeaseTTL,
		Logger:          r.log.Named("http"),
	}
	if r.guard.tokens != nil {
		opts.Tokens, opts.PeerToken = r.guard.tokens.Value, r.guard.peerToken.Value
	}
	r.api, err = httpapi.New(opts)
	return err
}

func (r *replica) serveHTTP(context.Context) error {
	complaints, err := complaints(r.log.Named("http"), r.monitor.HandshakeFailed)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           r.api,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          complaints,
		TLSConfig:         r.guard.serverTLS(),
		Protocols:         oneProtocol(),
	}
	new(freshConns).watch(server)
	serve := func() error { return server.Serve(r.listener) }
	if server.TLSConfig != nil {
		serve = func() error { return server.ServeTLS(r.listener, "", "") }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			r.broken <- fmt.Errorf("http server: %w", err)
		}
	}()
	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.api.WatchHealth(watching)
	}()
	r.onStop(func() error {
		stopWatching()
		<-watched
		r.api.Close() // streams would never end by themselves
		ctx, cancel := context.WithTimeout(context.Background(), hangUpTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // what has not been read by now never will be
		}
		<-ended
		return nil
	})
	return nil
}

// register enters the replica into the registry, where it stays until it stops.
func (r *replica) register(ctx context.Context) error {
	return r.leases.Register(ctx, etcdlease.Replica{ID: r.id, Address: r.address, Started: time.Now()})
}

// peer looks a replica up in the registry.
func (r *replica) peer(ctx context.Context, id string) (address string, known bool, err error) {
	replicas, err := r.leases.Replicas(ctx)
	for _, p := range replicas {
		if p.ID == id {
			return p.Address, true, nil
		}
	}
	return "", false, err
}

// wait returns nil when the replica is asked to stop, and otherwise why it cannot
// go on.
func (r *replica) wait(ctx context.Context) error {
	var etcdFailed <-chan error
	if r.etcd != nil {
		etcdFailed = r.etcd.Failed()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.broken:
		return err
	case err := <-etcdFailed:
		return fmt.Errorf("the embedded etcd stopped: %w", err)
	}
}

// stop hands every tenant off and ends everything. Readiness goes first, so that
// no request is sent here only to be refused; health and refusals go on until the
// last tenant is gone.
func (r *replica) stop() error {
	r.api.BeginDrain()
	r.log.Info("draining", zap.Int("tenants", len(r.router.Handles())))
	time.Sleep(readinessLead)
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.DrainTimeout+drainGrace)
	defer cancel()
	drained := r.router.Close(ctx)
	stopped := r.unwind()
	r.log.Info("stopped", zap.Bool("clean", drained == nil), zap.NamedError("drain_error", drained), zap.NamedError("stop_error", stopped))
	return errors.Join(drained, stopped)
}
