package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

const httpSamples = 60 // of each side of a round

// http compares an append through a replica with the same append by library call, and
// one that is forwarded with one that is not.
func (s *scaleBed) http(b *bench) (err error) {
	binary := filepath.Join(s.dir, "replica")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/replica").CombinedOutput(); err != nil {
		return fmt.Errorf("build the replica: %w: %s", err, out)
	}
	owner, err := s.startReplica(binary, "owner")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, owner.stop()) }()
	other, err := s.startReplica(binary, "other")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.stop()) }()
	empty, err := startChild("http", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty.stop()) }()
	r, err := s.router("library")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(context.Background())) }()
	h, err := r.Open(s.ctx, s.key("http", 0))
	if err != nil {
		return err
	}
	path := tenantEvents(s.key("http", 1))
	if err := post(s.ctx, owner.address+path); err != nil { // opens it there
		return err
	}
	direct := timed(func() error { return post(s.ctx, owner.address+path) })
	library := p50(httpSamples, timed(func() error { return appendNote(s.ctx, h) }))
	handler := p50(httpSamples, timed(func() error { return post(s.ctx, empty.address+path) }))
	both := func() (time.Duration, error) {
		a, err := library()
		if err != nil {
			return 0, err
		}
		b, err := handler()
		return a + b, err
	}
	err = b.closeRatio("scale: HTTP append through the owner, p50", 1.3, side{"POST", p50(httpSamples, direct)}, side{"library call + empty handler", both})
	if err != nil {
		return err
	}
	forwarded := timed(func() error { return post(s.ctx, other.address+path) })
	return b.closeRatio("scale: forwarded append, p50", 2, side{"forwarded", p50(httpSamples, forwarded)}, side{"direct", p50(httpSamples, direct)})
}

func (s *scaleBed) startReplica(binary, name string) (*child, error) {
	c := &child{cmd: exec.Command(binary, "--name", name, "--listen", "127.0.0.1:0", "--state-dir", filepath.Join(s.dir, name),
		"--etcd", s.etcd.address, "--copies", filepath.Join(s.dir, "copies"))}
	address, err := c.start(func(line string) (string, bool) {
		_, rest, found := strings.Cut(line, "serves  ")
		address, _, _ := strings.Cut(rest, " ")
		return address, found
	})
	if err != nil {
		return nil, fmt.Errorf("start replica %s: %w", name, err)
	}
	c.address = address
	return c, nil
}

func tenantEvents(key coord.Key) string {
	return "/v1/organizations/" + key.Organization() + "/tenants/" + key.Tenant() + "/events"
}

// post appends the note that appendNote appends.
func post(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(`{"actor":"bench","kind":"note","payload":{"n":1}}`)))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
		err = fmt.Errorf("%w: %s", errForNow, text)
	}
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}
