package etcdlease_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// An authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.file, _ = a.issue("authority", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return a
}

// issue writes a certificate and its key and returns the files. The first one signs
// itself and then all others.
func (a *authority) issue(name string, change func(*x509.Certificate)) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	change(template)
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+"-key.pem", "EC PRIVATE KEY", keyDER)
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func (a *authority) server() (certFile, keyFile string) {
	return a.issue("server", func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	})
}

func (a *authority) client() (certFile, keyFile string) {
	return a.issue("client", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
}

// Connections to an etcd that asks for a client's certificate: leases work, and
// whoever cannot show one, shows another authority's, or does not know etcd's
// authority is told so when the store is opened.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	serverCert, serverKey := ours.server()
	m := newMember(t, "https", func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: serverCert, KeyFile: serverKey, TrustedCAFile: ours.file, ClientCertAuth: true}
	})
	cert, key1 := ours.client()
	foreignCert, foreignKey := others.client()
	with := func(ca, cert, key string) func(*etcdlease.Config) {
		return func(c *etcdlease.Config) {
			c.Endpoints, c.CAFile, c.CertFile, c.KeyFile = m.endpoints(), ca, cert, key
		}
	}

	s := open(t, nil, with(ours.file, cert, key1))
	g := acquire(t, s, key(t, 1), "a", ttl)
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Error(err)
	}
	if err := s.Release(t.Context(), g.Tenure); err != nil {
		t.Error(err)
	}

	for name, who := range map[string]func(*etcdlease.Config){
		"no certificate":      with(ours.file, "", ""),
		"another authority's": with(ours.file, foreignCert, foreignKey),
		"unknown authority":   with(others.file, cert, key1),
	} {
		cfg := etcdlease.Config{Options: etcdlease.Options{Prefix: prefix(t)}}
		who(&cfg)
		cfg.RequestTimeout = impatient
		refused, err := etcdlease.Open(t.Context(), cfg)
		switch {
		case err == nil:
			refused.Close()
			t.Errorf("%s: got in", name)
		case !errors.Is(err, coord.CodeLeaseStoreUnavailable):
			t.Errorf("%s: got %v", name, err)
		case !strings.Contains(err.Error(), "certificate") || hintOf(err) == "":
			t.Errorf("%s: the reason is not told: %v", name, err)
		}
	}
}
