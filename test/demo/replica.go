package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/test/flights"
)

// A replica is a running process of the replica binary.
type replica struct {
	name   string
	url    string
	cmd    *exec.Cmd
	exited chan error // receives the result of Wait, once
}

// start returns when the replica has printed the address that it serves on.
func start(binary, name string, args ...string) (*replica, error) {
	r := &replica{name: name, exited: make(chan error, 1)}
	r.cmd = exec.Command(binary, append([]string{"--name", name, "--listen", "127.0.0.1:0"}, args...)...)
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for r.url == "" && lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "http://"); ok {
			r.url = "http://" + rest[:strings.IndexAny(rest+" ", "/ '\"")]
		}
	}
	go func() {
		io.Copy(io.Discard, out)
		r.exited <- r.cmd.Wait()
	}()
	if r.url == "" {
		return nil, errors.Join(fmt.Errorf("replica %s did not serve", name), <-r.exited)
	}
	return r, nil
}

// kill ends the process the hard way; it is harmless after it has ended.
func (r *replica) kill() { r.cmd.Process.Kill() }

func (r *replica) wait(ctx context.Context) error {
	select {
	case err := <-r.exited:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func path(key coord.Key, rest string) string {
	return "/v1/organizations/" + key.Organization() + "/tenants/" + key.Tenant() + rest
}

// A refusal is an answer that is no success.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return fmt.Sprintf("%d %s", e.status, e.text) }

func (r *replica) call(ctx context.Context, method, path string, body, into any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, reader)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return &refusal{resp.StatusCode, strings.TrimSpace(string(text))}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

func (r *replica) post(ctx context.Context, key coord.Key, action string, body, into any) error {
	return r.call(ctx, "POST", path(key, "/"+action), body, into)
}

type ack struct {
	Seq   uint64 `json:"seq"`
	Epoch uint64 `json:"epoch"`
}

// append retries, as a client must, under the event's idempotency key.
func (d *demo) append(key coord.Key, event flights.Event, through *replica) (ack, error) {
	for {
		var a ack
		err := through.post(d.ctx, key, "events", event, &a)
		var refused *refusal
		if err == nil || d.ctx.Err() != nil || errors.As(err, &refused) && refused.status != http.StatusServiceUnavailable {
			return a, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-d.ctx.Done():
		}
	}
}

func (r *replica) idemKeys(ctx context.Context, key coord.Key) ([]string, error) {
	var page struct {
		Events []struct {
			IdemKey string `json:"idem_key"`
		} `json:"events"`
	}
	err := r.call(ctx, "GET", path(key, "/events?limit=1000"), nil, &page)
	var ids []string
	for _, e := range page.Events {
		ids = append(ids, e.IdemKey)
	}
	return ids, err
}

// ownedBy returns the tenants that r holds.
func (d *demo) ownedBy(r *replica) ([]coord.Key, error) {
	var held struct {
		Tenants []struct {
			Organization string `json:"organization"`
			Tenant       string `json:"tenant"`
		} `json:"tenants"`
	}
	if err := r.call(d.ctx, "GET", "/v1/tenants", nil, &held); err != nil {
		return nil, err
	}
	var keys []coord.Key
	for _, t := range held.Tenants {
		key, err := coord.NewKey(t.Organization, t.Tenant)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// table prints how many tenants each replica holds; all of them if none is named.
func (d *demo) table(of ...*replica) error {
	if len(of) == 0 {
		of = d.replicas
	}
	for _, r := range of {
		owned, err := d.ownedBy(r)
		if err != nil {
			return err
		}
		fmt.Printf("  %s holds %3d tenants %s\n", r.name, len(owned), strings.Repeat("▪", len(owned)/2))
	}
	return nil
}
