package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
)

// An accessConfig is what can be set about who reaches a replica, and how.
type accessConfig struct {
	TLSCert       string
	TLSKey        string
	TLSClientCA   string
	TLSPeerCA     string
	Tokens        string
	PeerTokenFile string
}

func (c *accessConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.TLSCert, "tls-cert", "", "PEM `FILE` of this replica's certificate; shown to clients, and to other replicas that ask for one")
	f.StringVar(&c.TLSKey, "tls-key", "", "PEM `FILE` of the key to --tls-cert")
	f.StringVar(&c.TLSClientCA, "tls-client-ca", "", "PEM `FILE` of the authority whose certificates clients must show, other replicas included")
	f.StringVar(&c.TLSPeerCA, "tls-peer-ca", "", "PEM `FILE` of the authority for the other replicas' certificates (default those of the system)")
	f.StringVar(&c.Tokens, "tokens", "", "`FILE` that says which bearer token may do what; see new-token")
	f.StringVar(&c.PeerTokenFile, "peer-token-file", "", "`FILE` with the token of the peer role that this replica shows to others")
}

func (c *accessConfig) usesTLS() bool { return c.TLSCert != "" }

// guarded reports whether strangers can neither listen in nor be served.
func (c *accessConfig) guarded() bool { return c.usesTLS() && c.Tokens != "" }

func (c *accessConfig) scheme() string {
	if c.usesTLS() {
		return "https"
	}
	return "http"
}

func (c *accessConfig) check() error {
	var all []error
	if (c.TLSCert == "") != (c.TLSKey == "") {
		all = append(all, errors.New("tls-cert and tls-key go together"))
	}
	if (c.TLSClientCA != "" || c.TLSPeerCA != "") && !c.usesTLS() {
		all = append(all, errors.New("tls-client-ca and tls-peer-ca are for a replica with a tls-cert"))
	}
	if (c.Tokens == "") != (c.PeerTokenFile == "") {
		all = append(all, errors.New("tokens and peer-token-file go together: replicas that ask for tokens take forwarded requests only from replicas that show one"))
	}
	return errors.Join(all...)
}

// arguments are those by which another replica comes to the same settings.
func (c *accessConfig) arguments() (line string) {
	for _, arg := range [][2]string{
		{"tls-cert", c.TLSCert}, {"tls-key", c.TLSKey}, {"tls-client-ca", c.TLSClientCA}, {"tls-peer-ca", c.TLSPeerCA},
		{"tokens", c.Tokens}, {"peer-token-file", c.PeerTokenFile},
	} {
		if arg[1] != "" {
			line += " --" + arg[0] + " " + quoted(arg[1])
		}
	}
	return line
}

// unguarded is why a replica that everybody may use is nobody else's to reach.
const unguarded = "without TLS (tls-cert, tls-key) and tokens (tokens, peer-token-file) a replica serves on loopback only, since whoever reaches it may read and write every tenant"

func (c *config) checkListen() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen %q must be host:port", c.Listen)
	}
	if !isLoopback(host) && !c.guarded() {
		return fmt.Errorf("listen %q is not a loopback address: %s", c.Listen, unguarded)
	}
	if ip := net.ParseIP(host); c.Advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("listen %q means every address of this machine: say with advertise which of them other replicas reach", c.Listen)
	}
	return nil
}

// checkAdvertise also refuses to be reached through something that listens on the
// replica's behalf, which is no better than listening.
func (c *config) checkAdvertise() error {
	if c.Advertise == "" {
		return nil
	}
	u, err := url.Parse(c.Advertise)
	if err != nil || u.Scheme != c.scheme() || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("advertise %q must be %s://host:port and nothing more", c.Advertise, c.scheme())
	}
	if !isLoopback(u.Hostname()) && !c.guarded() {
		return fmt.Errorf("advertise %q is not a loopback address: %s", c.Advertise, unguarded)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
