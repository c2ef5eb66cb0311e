package test

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/test/pki"
)

// A guardedFleet is a fleet whose replicas ask for certificates and tokens.
type guardedFleet struct {
	*fleet
	dir       string
	authority *pki.Authority
	args      []string          // of every replica
	tokens    map[string]string // by name
}

func newGuardedFleet(t *testing.T) *guardedFleet {
	t.Helper()
	f := &guardedFleet{fleet: newFleet(t), dir: t.TempDir(), tokens: make(map[string]string)}
	var err error
	if f.authority, err = pki.New("fleet"); err != nil {
		t.Fatal(err)
	}
	ca, err := f.authority.WriteCA(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	own, _ := f.issue("replica")
	f.issue("client")
	keys := numberedKeys(t, 2)
	f.newToken("operator", "ops")
	f.newToken("tenant", "first", keys[0].String())
	f.newToken("peer", "replicas")
	peer := filepath.Join(f.dir, "peer-token")
	if err := os.WriteFile(peer, []byte(f.tokens["replicas"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.args = []string{
		"--tls-cert", own, "--tls-key", strings.TrimSuffix(own, ".pem") + "-key.pem", "--tls-client-ca", ca, "--tls-peer-ca", ca,
		"--tokens", f.tokenFile(), "--peer-token-file", peer,
	}
	f.client = f.clientWith("client")
	return f
}

func (f *guardedFleet) tokenFile() string { return filepath.Join(f.dir, "tokens") }

func (f *guardedFleet) issue(name string) (cert, key string) {
	f.t.Helper()
	cert, key, err := f.authority.Write(f.dir, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return cert, key
}

// clientWith returns a client that trusts the authority and shows the certificate of
// the given name, none if that is empty.
func (f *guardedFleet) clientWith(name string) *http.Client {
	f.t.Helper()
	cfg := &tls.Config{RootCAs: f.authority.Pool()}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(filepath.Join(f.dir, name+".pem"), filepath.Join(f.dir, name+"-key.pem"))
		if err != nil {
			f.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// newToken makes a token by the command that operators use.
func (f *guardedFleet) newToken(role, name string, tenants ...string) {
	f.t.Helper()
	out, err := exec.Command(replicaBinary, append([]string{"new-token", "--tokens", f.tokenFile(), role, name}, tenants...)...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("new-token: %v\n%s", err, out)
	}
	f.tokens[name] = strings.TrimSpace(string(out))
}

func (f *guardedFleet) start(name string, args ...string) *replica {
	f.t.Helper()
	return f.fleet.start(name, append(f.args, args...)...)
}

func (f *guardedFleet) as(name string) []string {
	return []string{"Authorization", "Bearer " + f.tokens[name]}
}

// RE-8, RE-4: two replicas that ask each other, and their clients, for certificates
// and tokens. A forwarded request goes through with the rights of its client; no
// token and no key shows in what the processes print or were started with.
func TestGuardedFleet(t *testing.T) {
	f := newGuardedFleet(t)
	a, b := f.start("a"), f.start("b")
	keys := numberedKeys(t, 2)
	first, second := tenantPath(keys[0]), tenantPath(keys[1])
	a.must(201, "POST", first+"/events", note("one"), f.as("first")...)
	if got := b.must(201, "POST", first+"/events", note("two"), f.as("first")...); !strings.HasPrefix(got.header.Get("Leasehold-Replica"), "a-") {
		t.Errorf("done by %s", got.header.Get("Leasehold-Replica"))
	}
	a.must(200, "POST", second+"/open", nil, f.as("ops")...)
	for _, r := range []*replica{a, b} {
		r.must(403, "POST", second+"/events", note("x"), f.as("first")...)
		r.must(403, "GET", "/v1/leases", nil, f.as("first")...)
		r.must(403, "GET", "/v1/leases", nil, f.as("replicas")...)
		r.must(401, "POST", first+"/events", note("x"))
		r.must(200, "GET", "/readyz", nil)
		metrics := r.must(200, "GET", "/metrics", nil, f.as("ops")...)
		if !strings.Contains(string(metrics.body), "\nleasehold_tls_certificate_end_timestamp_seconds 1.") {
			t.Error("no metric says when the certificate ends")
		}
		if !strings.Contains(string(metrics.body), "\nleasehold_access_files_stale 0\n") {
			t.Error("no metric says that the files of tokens can be read")
		}
		about := r.must(200, "GET", "/v1/replica", nil, f.as("ops")...)
		args := strings.Join(r.cmd.Args, " ")
		for name, token := range f.tokens {
			for where, text := range map[string]string{"metrics": string(metrics.body), "description": string(about.body), "arguments": args, "output": r.out.String()} {
				if strings.Contains(text, token) {
					t.Errorf("the token of %s stands in the %s of %s", name, where, r.url)
				}
			}
		}
	}

	// Without a certificate nobody gets so far as to show a token; nor in the clear.
	stranger := f.clientWith("")
	if resp, err := stranger.Get(a.url + "/readyz"); err == nil {
		resp.Body.Close()
		t.Errorf("a client without a certificate was answered: %d", resp.StatusCode)
	}
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	if resp, err := plain.Get("http" + strings.TrimPrefix(a.url, "https") + "/readyz"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == 200 {
			t.Error("a client without TLS was answered")
		}
	}
	if strings.Contains(a.out.String(), "TLS handshake") {
		t.Errorf("a stranger's handshake is logged:\n%s", a.out)
	}
}

// RE-8: a replica forwards to nobody whose certificate another authority signed.
func TestForwardVerifiesTheOwner(t *testing.T) {
	f := newGuardedFleet(t)
	a := f.start("a")
	foreign, err := pki.New("foreign")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := foreign.WriteCA(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	b := f.start("b", "--tls-peer-ca", ca)
	key := numberedKeys(t, 1)[0]
	a.must(201, "POST", tenantPath(key)+"/events", note("one"), f.as("ops")...)
	if got := b.must(503, "POST", tenantPath(key)+"/events", note("two"), f.as("ops")...); got.code() != "OWNER_UNREACHABLE" {
		t.Errorf("got %s", got)
	}
}

// RE-8: tokens and certificates are exchanged while the replica serves; a file that
// is wrong takes nothing away.
func TestGuardIsReadAgain(t *testing.T) {
	f := newGuardedFleet(t)
	a := f.start("a")
	key := numberedKeys(t, 1)[0]
	f.newToken("operator", "second")
	await := func(status int, who string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			got, err := a.do(ctx, "GET", "/v1/replica", nil, f.as(who)...)
			if err == nil && got.status == status {
				return
			}
			if !pause(ctx, 50*time.Millisecond) {
				t.Fatalf("%s gets %s, %v, want %d", who, got, err, status)
			}
		}
	}
	await(200, "second")
	entries, err := os.ReadFile(f.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(entries), "\n")
	if err := os.WriteFile(f.tokenFile(), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.eventuallySays("could not be read again")
	a.must(200, "GET", "/v1/replica", nil, f.as("ops")...)
	if err := os.WriteFile(f.tokenFile(), []byte(strings.Join(lines[1:], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	await(401, "ops")
	a.must(201, "POST", tenantPath(key)+"/events", note("one"), f.as("first")...)

	cert := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(a.url, "https://"), f.client.Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := cert()
	f.issue("replica")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for cert() == before {
		if !pause(ctx, 50*time.Millisecond) {
			t.Fatal("the new certificate is not shown")
		}
	}
	a.signal(syscall.SIGTERM)
	if code := a.wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// RE-8: files of secrets that everybody may read are refused, by name and with what
// to do; so is a peer token that other replicas would not know.
func TestOpenSecretsAreRefused(t *testing.T) {
	f := newGuardedFleet(t)
	try := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(replicaBinary, append([]string{"--listen", "127.0.0.1:0", "--state-dir", t.TempDir(),
			"--embedded-etcd-client", "127.0.0.1:0", "--embedded-etcd-peer", "127.0.0.1:0"}, args...)...).CombinedOutput()
		if err == nil {
			t.Errorf("served:\n%s", out)
		}
		return string(out)
	}
	for flag, base := range map[string]string{"tokens": "tokens", "peer-token-file": "peer-token", "tls-key": "replica-key.pem"} {
		path := filepath.Join(f.dir, base)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if out := try(f.args...); !strings.Contains(out, flag) || !strings.Contains(out, "chmod o= "+path) {
			t.Errorf("%s: %s", flag, out)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wrong := filepath.Join(f.dir, "wrong")
	if err := os.WriteFile(wrong, []byte(f.tokens["ops"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := try(append(f.args, "--peer-token-file", wrong)...); !strings.Contains(out, "peer role") || strings.Contains(out, f.tokens["ops"]) {
		t.Errorf("another's token as the peer token: %s", out)
	}
}
