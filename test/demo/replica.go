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
	"os/exec"
	"strconv"
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
	log    bytes.Buffer
}

// start returns when the replica has printed the address that it serves on.
func start(binary, name string, args ...string) (*replica, error) {
	r := &replica{name: name, exited: make(chan error, 1)}
	r.cmd = exec.Command(binary, append([]string{"--name", name, "--listen", "127.0.0.1:0"}, args...)...)
	r.cmd.Stderr = &r.log
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
		return nil, errors.Join(fmt.Errorf("replica %s did not serve", name), <-r.exited, errors.New(r.log.String()))
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

// uncopied returns how long the replica has had what it has not copied, at most.
func (r *replica) uncopied(ctx context.Context) (time.Duration, error) {
	const name = "leasehold_uncopied_seconds "
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			seconds, err := strconv.ParseFloat(value, 64)
			return time.Duration(seconds * float64(time.Second)), err
		}
	}
	return 0, fmt.Errorf("replica %s has no metric %s", r.name, name)
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

// append appends under the event's idempotency key and returns at which epoch it was
// acknowledged.
func (d *demo) append(key coord.Key, event flights.Event) (coord.Epoch, error) {
	var answer struct {
		Epoch coord.Epoch `json:"epoch"`
	}
	err := d.insist(func(r *replica) error { return r.post(d.ctx, key, "events", event, &answer) })
	return answer.Epoch, err
}

// insist tries replica after replica, as a client must that is told to come again.
func (d *demo) insist(ask func(*replica) error) error {
	for {
		err := ask(d.any())
		var refused *refusal
		if err == nil || d.ctx.Err() != nil || errors.As(err, &refused) && refused.status != http.StatusServiceUnavailable {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-d.ctx.Done():
		}
	}
}

// idemKeys reads a whole ledger.
func (d *demo) idemKeys(key coord.Key) ([]string, error) {
	var ids []string
	for after := int64(0); ; {
		var page struct {
			Events []struct {
				IdemKey string `json:"idem_key"`
			} `json:"events"`
			NextAfter int64 `json:"next_after"`
		}
		if err := d.insist(func(r *replica) error {
			return r.call(d.ctx, "GET", path(key, fmt.Sprintf("/events?limit=1000&after=%d", after)), nil, &page)
		}); err != nil {
			return nil, err
		}
		if len(page.Events) == 0 {
			return ids, nil
		}
		for _, e := range page.Events {
			ids = append(ids, e.IdemKey)
		}
		after = page.NextAfter
	}
}

// A holder is who has a tenant, by the name that a replica's id begins with.
type holder struct {
	name  string
	held  bool
	epoch coord.Epoch
}

// holders asks for every tenant's lease.
func (d *demo) holders() (map[coord.Key]holder, error) {
	var list struct {
		Leases []struct {
			Organization string      `json:"organization"`
			Tenant       string      `json:"tenant"`
			Owner        string      `json:"owner"`
			Held         bool        `json:"held"`
			Epoch        coord.Epoch `json:"epoch"`
		} `json:"leases"`
	}
	if err := d.insist(func(r *replica) error { return r.call(d.ctx, "GET", "/v1/leases?limit=1000", nil, &list) }); err != nil {
		return nil, err
	}
	held := make(map[coord.Key]holder)
	for _, l := range list.Leases {
		key, err := coord.NewKey(l.Organization, l.Tenant)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(l.Owner, "-")
		held[key] = holder{name: name, held: l.Held, epoch: l.Epoch}
	}
	return held, nil
}

// ownedBy returns the tenures of the replica of that name.
func (d *demo) ownedBy(name string) (map[coord.Key]coord.Epoch, error) {
	held, err := d.holders()
	tenures := make(map[coord.Key]coord.Epoch)
	for key, h := range held {
		if h.held && h.name == name {
			tenures[key] = h.epoch
		}
	}
	return tenures, err
}
