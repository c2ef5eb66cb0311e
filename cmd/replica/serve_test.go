package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A running replica in this process, with an etcd of its own.
type running struct {
	t      *testing.T
	url    string
	cancel context.CancelFunc
	ended  chan error
	log    *syncBuffer
}

type syncBuffer struct {
	mu struct {
		sync.Mutex
		buf bytes.Buffer
	}
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buf.String()
}

func freshConfig(t *testing.T) *config {
	cfg := defaultConfig()
	cfg.Listen, cfg.EmbeddedEtcdClient, cfg.EmbeddedEtcdPeer = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	return cfg
}

func startServing(t *testing.T, cfg *config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, ended: make(chan error, 1), log: &syncBuffer{}}
	out, in := io.Pipe()
	go func() {
		r.ended <- serve(ctx, cfg, in, r.log)
		in.Close()
	}()
	var printed bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(printed.String(), "Stop with") {
		n, err := out.Read(buf)
		printed.Write(buf[:n])
		if err != nil {
			t.Fatalf("did not serve: %v", <-r.ended)
		}
	}
	go io.Copy(io.Discard, out)
	_, rest, _ := strings.Cut(printed.String(), "serves  ")
	r.url, _, _ = strings.Cut(rest, " ")
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

func (r *running) status(method, path, body string) int {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("did not stop")
		return nil
	}
}

const demoPath = "/v1/organizations/" + demoOrganization + "/tenants/" + demoTenant

// RE-1, RE-3: with nothing configured it serves; asked to stop, it hands off and
// leaves its directory, port and goroutines to others. The log says no more than
// that, and nothing of what clients sent.
func TestServeAndStop(t *testing.T) {
	cfg := freshConfig(t)
	r := startServing(t, cfg)
	if _, err := lockStateDir(cfg.StateDir); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a second process on the state directory: %v", err)
	}
	if got := r.status("POST", demoPath+"/events", `{"actor":"secret-actor","kind":"k","subject_id":"s","payload":{},"idem_key":"i"}`); got != 201 {
		t.Errorf("append: %d", got)
	}
	stream, err := http.Get(r.url + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	r.cancel()
	if err := r.wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the event stream broke off: %v", err)
	}
	var said []string
	for line := range strings.Lines(r.log.String()) {
		var entry struct{ Msg, Level, Listen string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level != "info" {
			t.Errorf("log line %s", line)
		}
		if entry.Msg == "serving" && "http://"+entry.Listen != r.url {
			t.Errorf("listens on %q, serves on %q", entry.Listen, r.url)
		}
		said = append(said, entry.Msg)
	}
	if got := strings.Join(said, ", "); got != "serving, draining, stopped" {
		t.Errorf("the log says: %s", got)
	}
	if strings.Contains(r.log.String(), "secret-actor") {
		t.Error("the log holds personal data")
	}
	copies, err := filepath.Glob(filepath.Join(cfg.StateDir, copiesBase, demoOrganization, demoTenant, "e00000001", "snap-*.json"))
	if err != nil || len(copies) == 0 {
		t.Errorf("no final copy: %v, %v", copies, err)
	}
	again := startServing(t, cfg)
	again.cancel()
	if err := again.wait(); err != nil {
		t.Errorf("a second start: %v", err)
	}
}

// RE-3: what could not be handed off is named, and the result is an error.
func TestStopNamesWhatWasNotHandedOff(t *testing.T) {
	cfg := freshConfig(t)
	cfg.SnapshotEvery = 0
	r := startServing(t, cfg)
	if got := r.status("POST", demoPath+"/events", `{"actor":"a","kind":"k","subject_id":"s","payload":{},"idem_key":"i"}`); got != 201 {
		t.Fatalf("append: %d", got)
	}
	// A file where the epoch's directory was: no copy can be made.
	epoch := filepath.Join(cfg.StateDir, copiesBase, demoOrganization, demoTenant, "e00000001")
	if err := errors.Join(os.RemoveAll(epoch), os.WriteFile(epoch, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.cancel()
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), demoOrganization+"/"+demoTenant) {
		t.Errorf("stop: %v", err)
	}
}

// Trap 68: a start that is interrupted, or fails half-way, leaves nothing behind.
func TestStartThatFailsLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		change func(*config)
		want   string
	}{
		"interrupted":   {cancelled, func(*config) {}, "canceled"},
		"port taken":    {t.Context(), func(c *config) { c.Listen = taken.Addr().String() }, "address already in use"},
		"etcd's port":   {t.Context(), func(c *config) { c.EmbeddedEtcdClient = taken.Addr().String() }, "--etcd"},
		"no etcd":       {t.Context(), func(c *config) { c.Etcd = []string{"127.0.0.1:1"} }, "LEASE_STORE_UNAVAILABLE"},
		"bad margin":    {t.Context(), func(c *config) { c.LeaseMargin = c.LeaseTTL }, "margin"},
		"password file": {t.Context(), func(c *config) { c.Etcd, c.EtcdPasswordFile = []string{"127.0.0.1:1"}, "missing" }, "etcd-password-file"},
	} {
		cfg := freshConfig(t)
		cfg.Copies = cfg.copiesPlace()
		c.change(cfg)
		err := serve(c.ctx, cfg, io.Discard, io.Discard)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.want)) {
			t.Errorf("%s: got %v, want %q in it", name, err, c.want)
		}
		dir, err := lockStateDir(cfg.StateDir)
		if err != nil {
			t.Errorf("%s: the state directory is still locked: %v", name, err)
			continue
		}
		dir.Close()
	}
}
