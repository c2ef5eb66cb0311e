package etcdlease

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/leaseholddb/leasehold/coord"
)

// Connections are probed so that one that is cut without a word is noticed. etcd
// allows no more than a probe every five seconds, gRPC none below ten.
const (
	probeInterval = 10 * time.Second
	probeTimeout  = 3 * time.Second
)

// A Config says how to reach etcd.
type Config struct {
	Options

	// Endpoints are host:port or URLs of members. At least one.
	Endpoints []string
	// CAFile, CertFile and KeyFile name PEM files: the authority that etcd's
	// certificate is checked against, and this client's certificate and key. With
	// any of them, or an https endpoint, connections use TLS. Cert and key go
	// together.
	CAFile, CertFile, KeyFile string
	// Username and Password authenticate this client; both or neither.
	Username, Password string
	// DialOptions are added to those of the connection, such as interceptors.
	DialOptions []grpc.DialOption
}

// Validate names everything that is wrong with c in one error of
// [coord.CodeOptionsInvalid], or returns nil. It reads no file.
func (c Config) Validate() error {
	bad := c.Options.violations()
	if len(c.Endpoints) == 0 {
		bad = append(bad, "Endpoints is empty")
	}
	for i, e := range c.Endpoints {
		// Endpoints are numbered rather than quoted: one may hold a password.
		switch why := checkText(e, maxAddressLength); {
		case e == "" || why != "":
			bad = append(bad, fmt.Sprintf("endpoint %d is malformed", i+1))
		case strings.Contains(e, "@"):
			bad = append(bad, fmt.Sprintf("endpoint %d holds a user or a password: those are settings of their own", i+1))
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad = append(bad, "CertFile and KeyFile go together")
	}
	if (c.Username == "") != (c.Password == "") {
		bad = append(bad, "Username and Password go together")
	}
	return optionsError(bad)
}

// Open connects to etcd and makes a Store that owns the connection. It fails if
// etcd does not answer a read within [Options.RequestTimeout], so a wrong
// endpoint, certificate or password is found here. Which etcd the prefix was written by is
// asked too: if it was another one, later calls are refused with
// [coord.CodeEpochRolledBack]. ctx bounds Open only.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	opts := cfg.Options.withDefaults()
	tlsConfig, err := cfg.tls()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          opts.RequestTimeout,
		DialKeepAliveTime:    probeInterval,
		DialKeepAliveTimeout: probeTimeout,
		PermitWithoutStream:  false,
		TLS:                  tlsConfig,
		Username:             cfg.Username,
		Password:             cfg.Password,
		DialOptions:          cfg.DialOptions,
		Logger:               warnings(opts.Logger),
	})
	if err != nil {
		return nil, fail(ctx, "open", coord.Key{}, err)
	}
	s, err := New(client, &opts)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.ownsClient = true
	if err = s.probe(ctx); err == nil {
		err = s.recognise(ctx)
	}
	if err != nil {
		return nil, errors.Join(explain(ctx, cfg, tlsConfig, fail(ctx, "open", coord.Key{}, err)), s.Close())
	}
	return s, nil
}

func (s *Store) probe(ctx context.Context) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.keys.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err == nil {
		s.observe(resp.Header, 1)
	}
	return err
}

func (c Config) tls() (*tls.Config, error) {
	if c.CAFile == "" && c.CertFile == "" {
		return nil, nil // an https endpoint brings its own defaults
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fileError("CAFile", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fileError("CAFile", errors.New("it holds no certificate"))
		}
	}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fileError("CertFile and KeyFile", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

func fileError(what string, err error) error {
	return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "etcd lease store", Detail: what, Err: err}
}

// warnings keeps the client's retries out of the log.
func warnings(log *zap.Logger) *zap.Logger {
	if log.Core().Enabled(zap.WarnLevel) {
		return log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	}
	return log
}
