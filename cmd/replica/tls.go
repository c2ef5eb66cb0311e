package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
)

const (
	// rereadEvery is how often certificate, key and tokens are read again.
	rereadEvery = time.Second
	// remindEvery is how often the log says again that one cannot be.
	remindEvery = 5 * time.Minute
)

// A guard is what keeps strangers out. What is nil was not asked for.
type guard struct {
	cert      *access.Live[*tls.Certificate]
	clientCAs *x509.CertPool
	peerCAs   *x509.CertPool
	tokens    *access.Live[*access.Tokens]
	peerToken *access.Live[string]
	stale     atomic.Int64 // how many of them could not be read again
}

// readGuard reads the files that say who may come in, now and from time to time.
func (r *replica) readGuard(context.Context) (err error) {
	if r.guard, err = newGuard(&r.cfg.accessConfig); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.guard.watch(ctx, r.log.Named("access"))
	}()
	r.onStop(func() error {
		cancel()
		<-watched
		return nil
	})
	return nil
}

// newGuard reads every file, and refuses those of secrets that everybody may read.
func newGuard(cfg *accessConfig) (*guard, error) {
	g := &guard{}
	var all []error
	note := func(flag string, err error) {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", flag, err))
		}
	}
	var err error
	if cfg.usesTLS() {
		g.cert, err = access.NewLive(pair(cfg.TLSCert, cfg.TLSKey), parsePair)
		note("tls-cert, tls-key", err)
	}
	g.clientCAs, err = readAuthorities(cfg.TLSClientCA)
	note("tls-client-ca", err)
	g.peerCAs, err = readAuthorities(cfg.TLSPeerCA)
	note("tls-peer-ca", err)
	if cfg.Tokens != "" {
		g.tokens, err = access.NewLive(secret(cfg.Tokens), access.Parse)
		note("tokens", err)
	}
	if cfg.PeerTokenFile != "" && g.tokens != nil {
		g.peerToken, err = access.NewLive(secret(cfg.PeerTokenFile), g.parsePeerToken)
		note("peer-token-file", err)
	}
	return g, errors.Join(all...)
}

func secret(path string) func() ([]byte, error) {
	return func() ([]byte, error) { return access.ReadSecret(path) }
}

// pair reads a certificate and its key as one text.
func pair(cert, key string) func() ([]byte, error) {
	return func() ([]byte, error) {
		text, err := os.ReadFile(cert)
		if err != nil {
			return nil, err
		}
		secret, err := access.ReadSecret(key)
		return slices.Concat(text, []byte("\n"), secret), err
	}
}

func parsePair(text []byte) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(text, text)
	return &cert, err
}

// parsePeerToken refuses a token by which other replicas, which have the same file
// of tokens, would not know this one.
func (g *guard) parsePeerToken(text []byte) (string, error) {
	token, err := access.ParseToken(text)
	if err != nil {
		return "", err
	}
	if grant, known := g.tokens.Value().Find(token); !known || grant.Role != access.Peer {
		return "", errors.New("the token has no entry with the peer role among tokens")
	}
	return token, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return pool, nil
}

// serverTLS is how clients are met; nil without TLS.
func (g *guard) serverTLS() *tls.Config {
	if g.cert == nil {
		return nil
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.cert.Value(), nil },
	}
	if g.clientCAs != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, g.clientCAs
	}
	return cfg
}

// certificateEnds says when the certificate of the moment does; nil without TLS.
func (g *guard) certificateEnds() func() time.Time {
	if g.cert == nil {
		return nil
	}
	return func() time.Time { return g.cert.Value().Leaf.NotAfter }
}

// peerTLS is how other replicas are met; nil without TLS.
func (g *guard) peerTLS() *tls.Config {
	if g.cert == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    g.peerCAs,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return g.cert.Value(), nil
		},
	}
}

// watch reads the files again until ctx ends. What cannot be read leaves what was
// read before in force, and is logged when it begins and from time to time.
func (g *guard) watch(ctx context.Context, log *zap.Logger) {
	var files []*watched
	add := func(what string, refresh func() (bool, error)) {
		files = append(files, &watched{what: what, refresh: refresh, stale: &g.stale})
	}
	if g.cert != nil {
		add("certificate", g.cert.Refresh)
	}
	if g.tokens != nil {
		add("tokens", g.tokens.Refresh)
		add("peer token", g.peerToken.Refresh)
	}
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for len(files) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, f := range files {
			f.check(log, time.Now())
		}
	}
}

// A watched is a file, or two, that is read again and again.
type watched struct {
	what    string
	refresh func() (bool, error)
	stale   *atomic.Int64 // counts those that are wrong
	wrong   string        // what was logged last, while that goes on
	told    time.Time     // when
}

func (f *watched) check(log *zap.Logger, now time.Time) {
	changed, err := f.refresh()
	if was, is := f.wrong != "", err != nil; is && !was {
		f.stale.Add(1)
	} else if was && !is {
		f.stale.Add(-1)
	}
	switch {
	case err == nil:
		if changed || f.wrong != "" {
			log.Info("read again", zap.String("what", f.what))
		}
		f.wrong = ""
	case err.Error() != f.wrong || now.Sub(f.told) >= remindEvery:
		f.wrong, f.told = err.Error(), now
		log.Warn("could not be read again; what was read before stays in force", zap.String("what", f.what), zap.Error(err))
	}
}

// complaints is where an http.Server logs. A connection that does not get through
// the handshake is somebody else's mistake, or a probe of the port: it is counted
// and not logged, also because the line names the client's address.
func complaints(to *zap.Logger, handshakeFailed func()) (*log.Logger, error) {
	std, err := zap.NewStdLogAt(to, zap.WarnLevel)
	if err != nil {
		return nil, err
	}
	return log.New(&withoutHandshakes{std, handshakeFailed}, "", 0), nil
}

type withoutHandshakes struct {
	next   *log.Logger
	failed func()
}

func (w *withoutHandshakes) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		w.failed()
		return len(line), nil
	}
	return w.next.Writer().Write(line)
}

// oneProtocol keeps to the HTTP whose limits on slow clients are those of this
// server: HTTP/2 brings its own.
func oneProtocol() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	return p
}
