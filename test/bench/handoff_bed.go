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
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// A handoffBed is an etcd and a directory of copies that sync to disk, and two
// replica processes on them.
type handoffBed struct {
	ctx      context.Context
	replicas []*handoffReplica
	client   *http.Client
	tenants  int
	stops    []func() error // in reverse
}

type handoffReplica struct {
	id, url string
	process *exec.Cmd
	ended   chan error
}

func newHandoffBed(ctx context.Context) (_ *handoffBed, err error) {
	bed := &handoffBed{ctx: ctx, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, bed.close())
		}
	}()
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	bed.stops = append(bed.stops, func() error { return os.RemoveAll(dir) })
	binary := filepath.Join(dir, "replica")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/leaseholddb/leasehold/cmd/replica").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the replica: %w\n%s", err, out)
	}
	etcd, err := embedetcd.Start(ctx, embedetcd.Config{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		return nil, err
	}
	bed.stops = append(bed.stops, etcd.Close)
	for _, name := range []string{"a", "b"} {
		if err := bed.start(binary, "--name", name, "--listen", "127.0.0.1:0", "--etcd", strings.Join(etcd.Endpoints(), ","),
			"--state-dir", filepath.Join(dir, name), "--copies", filepath.Join(dir, "copies")); err != nil {
			return nil, err
		}
	}
	return bed, nil
}

// start returns when the replica serves.
func (b *handoffBed) start(binary string, args ...string) error {
	r := &handoffReplica{process: exec.Command(binary, args...), ended: make(chan error, 1)}
	r.process.Stderr = io.Discard // what goes wrong shows in the rows
	out, err := r.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.process.Start(); err != nil {
		return err
	}
	b.stops = append(b.stops, func() error {
		_ = r.process.Process.Signal(syscall.SIGTERM)
		return <-r.ended
	})
	lines := bufio.NewScanner(out)
	for r.url == "" && lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "http://"); ok {
			r.url = "http://" + rest[:strings.IndexAny(rest+" ", "/ '\"")]
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		r.ended <- r.process.Wait()
	}()
	var self struct{ Replica string }
	if err := b.call(r, "GET", "/v1/replica", nil, &self); err != nil {
		return err
	}
	r.id = self.Replica
	b.replicas = append(b.replicas, r)
	return nil
}

func (b *handoffBed) close() error {
	var all []error
	for len(b.stops) > 0 {
		last := len(b.stops) - 1
		all = append(all, b.stops[last]())
		b.stops = b.stops[:last]
	}
	b.client.CloseIdleConnections()
	return errors.Join(all...)
}

// call sends one request; any status but a success is an error.
func (b *handoffBed) call(r *handoffReplica, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if body == nil {
		text = nil
	}
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(b.ctx, method, r.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%s %s: %w: %s", method, path, errForNow, text)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// tenant returns the path of a new tenant of about so many bytes, at the first replica.
func (b *handoffBed) tenant(size int) (string, error) {
	b.tenants++
	key, err := coord.NewKey("bench", fmt.Sprintf("t-%032x", b.tenants))
	if err != nil {
		return "", err
	}
	path := "/v1/organizations/" + key.Organization() + "/tenants/" + key.Tenant()
	piece := min(size/4, 900<<10)
	filler := json.RawMessage(`"` + strings.Repeat("x", piece) + `"`)
	for i := 0; i*piece < size; i++ {
		call := func() error {
			return b.call(b.replicas[0], "POST", path+"/events", benchEvent(fmt.Sprintf("filler-%d", i), filler), nil)
		}
		err := call()
		for range 30 { // a busy disk may keep etcd from renewing, and with it the replica from acknowledging
			if err == nil {
				break
			}
			time.Sleep(time.Second)
			err = call()
		}
		if err != nil {
			return "", err
		}
	}
	return path, nil
}

func benchEvent(id string, payload json.RawMessage) map[string]any {
	return map[string]any{"actor": "bench", "kind": "note.taken", "payload": payload, "idem_key": id}
}

// move hands the tenant from one replica to the other.
func (b *handoffBed) move(path string, from int) error {
	var moved struct {
		NextEpoch uint64 `json:"next_epoch"`
	}
	err := b.call(b.replicas[from], "POST", path+"/handoff", map[string]string{"to": b.replicas[1-from].id}, &moved)
	if err == nil && moved.NextEpoch == 0 {
		err = errors.New("the successor did not open the tenant")
	}
	return err
}

// A load is clients that work on a tenant without a break, half of them at each
// replica. One that fails tries once more at the other.
type load struct {
	stop func() ([]time.Time, int, error)
}

// start begins a load of so many clients; stop returns when each of their calls was
// answered well, how many failed twice, and why the last of those did.
func (b *handoffBed) load(clients int, call func(r *handoffReplica, id string) error) load {
	done := make(chan struct{})
	type result struct {
		answers []time.Time
		failed  int
		err     error
	}
	results := make(chan result)
	for c := range clients {
		go func() {
			var got result
			for i := 0; ; i++ {
				select {
				case <-done:
					results <- got
					return
				default:
				}
				id := fmt.Sprintf("load-%d-%d-%d", b.tenants, c, i)
				err := call(b.replicas[c%2], id)
				if err != nil {
					err = call(b.replicas[1-c%2], id)
				}
				if err != nil {
					got.failed, got.err = got.failed+1, err
					continue
				}
				got.answers = append(got.answers, time.Now())
			}
		}()
	}
	return load{stop: func() (answers []time.Time, failed int, err error) {
		close(done)
		for range clients {
			got := <-results
			answers, failed = append(answers, got.answers...), failed+got.failed
			if got.err != nil {
				err = got.err
			}
		}
		return answers, failed, err
	}}
}
