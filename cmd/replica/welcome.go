package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The tenant in the lines that a start prints.
const (
	demoOrganization = "demo"
	demoTenant       = "t-860cead4b9aab8577b5f03fdeff1ead1"
)

// welcome tells people what runs and what to try next. Programs read the log.
func (r *replica) welcome(w io.Writer) {
	copies := r.cfg.copiesPlace()
	if abs, err := filepath.Abs(copies); err == nil && !isBucket(copies) {
		copies = abs
	}
	here := r.cfg.scheme() + "://" + r.listener.Addr().String()
	tenant := here + "/v1/organizations/" + demoOrganization + "/tenants/" + demoTenant
	endpoints := strings.Join(r.endpoints, ",")
	curl := r.curl()
	lines := []string{
		"replica " + r.id,
		"  serves  " + here + "  (" + r.company() + ")",
		"  etcd    " + r.etcdKind(endpoints),
		"  copies  " + copies + "  (" + r.copyPace() + ")",
		"",
		"Try it:",
		"  " + curl + " -X POST " + tenant + "/open",
		"  " + curl + ` -d '{"actor":"me","kind":"note.added","subject_id":"note-1","payload":{"text":"hello"},"idem_key":"note-1"}' ` + tenant + "/events",
		"  " + curl + " '" + tenant + "/events?after=0&limit=10'",
		"  " + curl + ` -d '{"sql":"SELECT kind, count(*) AS n FROM events GROUP BY kind"}' ` + tenant + "/query",
		"",
		"A second replica on this machine, in another terminal:",
		"  " + quoted(os.Args[0]) + " --listen 127.0.0.1:0 --state-dir ./leasehold-data-2 --etcd " + endpoints + " --copies " + quoted(copies) + r.cfg.accessConfig.arguments(),
		"",
		"Stop with Ctrl-C: every tenant is handed off first.",
	}
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // whoever closed stdout does not want them
}

// company says who may come.
func (r *replica) company() string {
	if r.cfg.guarded() {
		return "TLS, and a token for everything but /livez and /readyz"
	}
	return "loopback only, until both TLS and tokens are configured"
}

// curl begins the lines to try, with what a guarded replica asks for besides.
func (r *replica) curl() string {
	curl := "curl"
	if r.cfg.usesTLS() {
		curl += ` --cacert "$CA"`
	}
	if r.cfg.Tokens != "" {
		curl += ` -H "Authorization: Bearer $TOKEN"`
	}
	return curl
}

func (r *replica) etcdKind(endpoints string) string {
	if r.etcd != nil {
		return endpoints + "  (embedded, in " + filepath.Join(r.cfg.StateDir, etcdBase) + ")"
	}
	return endpoints
}

func (r *replica) copyPace() string {
	if r.cfg.SnapshotEvery == 0 {
		return "at each handoff only: a crash loses everything since"
	}
	return fmt.Sprintf("every %v and at each handoff: a crash loses at most what came since", r.cfg.SnapshotEvery)
}

// quoted makes a path one word for a shell.
func quoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
