package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load runs the whole way from the command line to a config.
func load(t *testing.T, args, environ []string) (*config, error) {
	t.Helper()
	cfg := defaultConfig()
	flags := pflag.NewFlagSet("replica", pflag.ContinueOnError)
	cfg.addFlags(flags)
	file := flags.String(configFlag, "", "")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return cfg, cfg.load(flags, *file, environ)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "replica.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// RE-1: a flag wins over a variable, a variable over the file, the file over the
// default.
func TestConfigPrecedence(t *testing.T) {
	file := writeFile(t, "lease-ttl: 20s\nsnapshot-every: 20s\ndrain-timeout: 20s\netcd: [a:1, b:2]\ncopies: /copies\nmax-tenants: 7\n")
	env := []string{"LEASEHOLD_LEASE_TTL=30s", "LEASEHOLD_SNAPSHOT_EVERY=30s", "LEASEHOLD_MAX_TENANTS=", "PATH=/bin", "LEASEHOLD_CONFIG=" + file}
	cfg, err := load(t, []string{"--lease-ttl", "40s"}, env)
	if err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"flag":           cfg.LeaseTTL == 40*time.Second,
		"variable":       cfg.SnapshotEvery == 30*time.Second,
		"file":           cfg.DrainTimeout == 20*time.Second,
		"list":           strings.Join(cfg.Etcd, " ") == "a:1 b:2",
		"empty variable": cfg.MaxTenants == 7,
		"default":        cfg.Listen == defaultListen && cfg.StateDir == defaultStateDir,
	} {
		if !ok {
			t.Errorf("%s does not count: %+v", what, cfg)
		}
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	file := writeFile(t, "leese-ttl: 1s\nlease-ttl: soon\nname: {a: b}\nhelp: true\n")
	env := []string{"LEASEHOLD_NAMES=x", "LEASEHOLD_max_tenants=3", "LEASEHOLD_KEEP_COPIES=many", "LEASEHOLD_PORT=tcp://10.0.0.1:8420", "LEASEHOLD_SERVICE_HOST=10.0.0.1"}
	_, err := load(t, []string{"--config", file}, env)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"leese-ttl", "lease-ttl", "setting help", "name: must be", "LEASEHOLD_NAMES", "LEASEHOLD_max_tenants", "LEASEHOLD_KEEP_COPIES"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "SERVICE") || strings.Contains(err.Error(), "PORT") {
		t.Errorf("a service link counts as a setting: %v", err)
	}
}

func TestConfigRefusesFile(t *testing.T) {
	for name, content := range map[string]string{
		"not YAML":      "a: [",
		"a list":        "- lease-ttl\n",
		"twice":         "lease-ttl: 1s\nlease-ttl: 2s\n",
		"two documents": "lease-ttl: 1s\n---\nlease-ttl: 2s\n",
		"no value":      "lease-ttl:\n",
	} {
		if _, err := load(t, []string{"--config", writeFile(t, content)}, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := load(t, []string{"--config", filepath.Join(t.TempDir(), "missing")}, nil); err == nil {
		t.Error("a missing file: accepted")
	}
	if _, err := load(t, []string{"--config", writeFile(t, "# nothing set\n")}, nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// RE-8: without TLS and authentication, loopback only.
func TestConfigListensOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "127.8.8.8:80", "[::1]:8420", "localhost:8420"} {
		if _, err := load(t, []string{"--listen", addr}, nil); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"0.0.0.0:8420", ":8420", "[::]:8420", "10.0.0.1:8420", "example.com:80"} {
		if _, err := load(t, []string{"--listen", addr}, nil); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: got %v", addr, err)
		}
	}
	if _, err := load(t, []string{"--listen", "8420"}, nil); err == nil {
		t.Error("an address without a host is accepted")
	}
	tlsArgs := []string{"--tls-cert", "c", "--tls-key", "k"}
	tokenArgs := []string{"--tokens", "t", "--peer-token-file", "p"}
	for name, args := range map[string][]string{
		"TLS alone":               append([]string{"--listen", "10.0.0.1:1"}, tlsArgs...),
		"tokens alone":            append([]string{"--listen", "10.0.0.1:1"}, tokenArgs...),
		"advertise alone":         {"--advertise", "http://10.0.0.1:1"},
		"advertise with TLS only": append([]string{"--advertise", "https://10.0.0.1:1"}, tlsArgs...),
	} {
		if _, err := load(t, args, nil); err == nil || !strings.Contains(err.Error(), "tls-cert") || !strings.Contains(err.Error(), "tokens") || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	both := append(tlsArgs, tokenArgs...)
	if _, err := load(t, append([]string{"--listen", "10.0.0.1:1"}, both...), nil); err != nil {
		t.Errorf("with TLS and tokens: %v", err)
	}
	if _, err := load(t, append([]string{"--listen", ":1"}, both...), nil); err == nil || !strings.Contains(err.Error(), "advertise") {
		t.Errorf("every address, and none to advertise: %v", err)
	}
	if _, err := load(t, append([]string{"--listen", "0.0.0.0:1", "--advertise", "https://replica-1.example:1"}, both...), nil); err != nil {
		t.Errorf("every address, and one to advertise: %v", err)
	}
}

func TestConfigRefusesValues(t *testing.T) {
	for name, args := range map[string][]string{
		"bucket":            {"--copies", "gs://bucket/prefix"},
		"bucket's secret":   {"--copies", "s3://key:secret@bucket"},
		"name":              {"--name", "a b"},
		"margin":            {"--lease-ttl", "2s", "--lease-margin", "2s"},
		"ttl":               {"--lease-ttl", "1ms"},
		"advertise":         {"--advertise", "http://host:1/path"},
		"advertise https":   {"--advertise", "https://host:1"},
		"advertise http":    {"--advertise", "http://127.0.0.1:1", "--tls-cert", "c", "--tls-key", "k"},
		"certificate alone": {"--tls-cert", "c"},
		"client CA alone":   {"--tls-client-ca", "c"},
		"tokens alone":      {"--tokens", "t"},
		"peer token alone":  {"--peer-token-file", "t"},
		"drain":             {"--drain-timeout", "0s"},
		"tenure":            {"--min-tenure", "0s"},
		"park":              {"--park-timeout", "0s"},
		"tenants":           {"--max-tenants", "-1"},
		"lanes":             {"--close-concurrency", "0"},
		"copies":            {"--keep-copies", "0"},
		"drills":            {"--drill-every", "-1s"},
		"copies at once":    {"--copy-concurrency", "0"},
		"idle close":        {"--idle-close", "0s"},
		"idle handoff":      {"--idle-handoff", "-1s"},
		"snapshots":         {"--snapshot-every", "-1s"},
		"state dir":         {"--state-dir", ""},
		"TLS, embedded":     {"--etcd-ca", "ca.pem"},
		"cert without key":  {"--etcd", "a:1", "--copies", "c", "--etcd-cert", "c.pem"},
		"user, no password": {"--etcd", "a:1", "--copies", "c", "--etcd-user", "u"},
	} {
		if _, err := load(t, args, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := load(t, []string{"--lease-ttl", "1s"}, nil); err != nil {
		t.Errorf("a short TTL needs a margin of its own: %v", err)
	}
}
