package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	memberName = "embedded"
	// The minimum lease TTL is one and a half election timeouts, rounded up to a
	// second; these make it one second.
	heartbeat       = 100 * time.Millisecond
	electionTimeout = 600 * time.Millisecond
	keepHistory     = time.Hour
	// portAttempts bounds how often a free port that somebody else took in the
	// meantime is replaced by another one.
	portAttempts = 10
)

// A Server is a running embedded etcd. It is safe for concurrent use.
type Server struct {
	etcd      *embed.Etcd
	dir       *dataDir
	endpoint  string
	closeOnce sync.Once
	closeErr  error
}

// Start runs an etcd and returns once it serves, or fails and leaves nothing
// behind: no goroutine, no listener, no lock. A taken port is
// [coord.CodeLeaseStoreUnavailable]; a directory that this etcd may not use and a
// bad Config are [coord.CodeOptionsInvalid]. When ctx ends first its error is
// returned. Afterwards ctx has no influence: only [Server.Close] stops the server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	dir, err := openDataDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s, err := startLocked(ctx, cfg, dir)
	if err != nil {
		dir.close()
		return nil, err
	}
	return s, nil
}

// Endpoints returns the URLs for clients, with the port that was really chosen.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Failed returns a channel that receives an error when the server stops serving
// by itself, and is closed when it has stopped.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close stops the server and waits for it, [CloseTimeout] at most; requests that
// are running get an error. When it returns nil the ports and the directory are
// free. It may be called more than once.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		if s.closeErr = stop(s.etcd); s.closeErr == nil {
			s.dir.close()
		}
	})
	return s.closeErr
}

func startLocked(ctx context.Context, cfg Config, dir *dataDir) (*Server, error) {
	etcd, err := launch(cfg, dir.mark.Token)
	if err != nil {
		return nil, startError(err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err = <-etcd.Err():
	case <-etcd.Server.StopNotify():
		err = errors.New("the server stopped while starting")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = dir.confirm(etcd.Server.Cluster().ID().String(), etcd.Server.MemberID().String())
	}
	if err != nil {
		return nil, errors.Join(startError(err), stop(etcd))
	}
	return &Server{etcd: etcd, dir: dir, endpoint: "http://" + etcd.Clients[0].Addr().String()}, nil
}

// launch starts etcd, choosing the ports that were left open. etcd advertises the
// URLs it was configured with, so a port 0 must be settled before it starts.
func launch(cfg Config, token string) (*embed.Etcd, error) {
	for attempt := 1; ; attempt++ {
		client, err := settlePort(cfg.ClientAddr)
		if err != nil {
			return nil, err
		}
		peer, err := settlePort(cfg.PeerAddr)
		if err != nil {
			return nil, err
		}
		etcd, err := startEtcd(etcdConfig(cfg, client, peer, token))
		chosen := client != cfg.ClientAddr || peer != cfg.PeerAddr
		if err != nil && chosen && attempt < portAttempts && errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		return etcd, err
	}
}

func settlePort(addr string) (string, error) {
	if _, port, err := net.SplitHostPort(addr); err != nil || port != "0" {
		return addr, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func etcdConfig(cfg Config, client, peer, token string) *embed.Config {
	clientURL := url.URL{Scheme: "http", Host: client}
	peerURL := url.URL{Scheme: "http", Host: peer}
	ec := embed.NewConfig()
	ec.Name = memberName
	ec.Dir = cfg.Dir
	ec.ListenClientUrls, ec.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
	ec.ListenPeerUrls, ec.AdvertisePeerUrls = []url.URL{peerURL}, []url.URL{peerURL}
	ec.InitialCluster = ec.InitialClusterFromName(memberName)
	ec.InitialClusterToken = token
	ec.TickMs = uint(heartbeat.Milliseconds())
	ec.ElectionMs = uint(electionTimeout.Milliseconds())
	ec.AutoCompactionMode = embed.CompactorModePeriodic
	ec.AutoCompactionRetention = keepHistory.String()
	ec.QuotaBackendBytes = cfg.QuotaBytes
	ec.EnableGRPCGateway = false
	ec.UnsafeNoFsync = cfg.UnsafeNoSync
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(quiet(cfg.Logger))
	return ec
}

// quiet keeps warnings and errors, and turns etcd's way of ending the process
// into a panic, which startEtcd catches.
func quiet(log *zap.Logger) *zap.Logger {
	log = log.WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))
	if log.Core().Enabled(zapcore.InfoLevel) {
		log = log.WithOptions(zap.IncreaseLevel(zapcore.WarnLevel))
	}
	return log
}

// startEtcd returns as an error what etcd logs as fatal while it reads its data.
func startEtcd(ec *embed.Config) (etcd *embed.Etcd, err error) {
	defer func() {
		if p := recover(); p != nil {
			etcd, err = nil, fmt.Errorf("etcd gave up: %v", p)
		}
	}()
	return embed.StartEtcd(ec)
}

func stop(etcd *embed.Etcd) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		etcd.Close()
	}()
	timer := time.NewTimer(CloseTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: "embedded etcd", Detail: fmt.Sprintf("did not stop within %v", CloseTimeout)}
	}
}

// startError gives the cause of a failed start its code and a hint.
func startError(err error) error {
	if coord.CodeOf(err) != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: "embedded etcd", Detail: "it did not start", Err: err}
	if errors.Is(err, syscall.EADDRINUSE) {
		e.Detail = "an address is taken"
		e.Hint = "another etcd may run there: use its endpoints, or choose other addresses"
	}
	return e
}
