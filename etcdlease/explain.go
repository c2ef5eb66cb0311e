package etcdlease

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// How long one endpoint may take to say why it refuses a connection, and how long
// it may take to take back its consent: a server that does not like a client's
// certificate says so only after the client's part of the handshake is over.
const (
	explainWithin = 5 * time.Second
	secondThought = 2 * time.Second
)

// explain adds to the error of a first request that was not answered what the TLS
// handshake fails with, if that is why. etcd's client keeps it to itself.
func explain(ctx context.Context, cfg Config, conf *tls.Config, err error) error {
	var unanswered *coord.Error
	if !errors.As(err, &unanswered) || !errors.Is(err, errNoAnswer) {
		return err
	}
	for _, endpoint := range cfg.Endpoints {
		addr, secure := strings.CutPrefix(endpoint, "https://")
		if !secure && (conf == nil || strings.Contains(endpoint, "://")) {
			continue
		}
		if reason := handshake(ctx, addr, conf); reason != nil {
			unanswered.Err = errors.Join(errNoAnswer, reason)
			unanswered.Hint = "check the certificates of etcd and of this client, and the authorities that they are checked against"
			return err
		}
	}
	return err
}

// handshake returns what a handshake fails with, nil if it succeeds or does not even
// begin.
func handshake(ctx context.Context, addr string, conf *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil
	}
	defer raw.Close()
	own := new(tls.Config)
	if conf != nil {
		own = conf.Clone()
	}
	own.NextProtos = []string{"h2"} // as gRPC asks
	own.ServerName, _, _ = net.SplitHostPort(addr)
	conn := tls.Client(raw, own)
	if err := conn.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if conn.SetReadDeadline(time.Now().Add(secondThought)) != nil {
		return nil
	}
	_, err = conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
