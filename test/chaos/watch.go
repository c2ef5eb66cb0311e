//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

const (
	prefix      = "/leasehold/"
	epochPrefix = prefix + "epoch/"
	ownerPrefix = prefix + "owner/"
)

// skippedCopies counts, among what replicas told, the copies that a restore did not trust.
const skippedCopies = "skipped_copies"

// An observer records what the lease store and the replicas say of tenures.
type observer struct {
	*fleet
	etcd  *clientv3.Client
	mu    sync.Mutex
	seen  int64                  // revision up to which etcd's changes are recorded
	held  map[string]coord.Epoch // by tenant
	tales map[string]int         // how often replicas told of each kind of event

	silent, longest time.Duration // of etcd as a whole
}

func newObserver(f *fleet) (*observer, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: f.endpoints(), DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &observer{fleet: f, etcd: etcd, held: make(map[string]coord.Epoch), tales: make(map[string]int)}, nil
}

// watchEtcd records every grant and every end, from the first on, until ctx ends. A watch that breaks
// goes on where it was.
func (o *observer) watchEtcd(ctx context.Context) {
	for ctx.Err() == nil {
		// Without a leader a member would keep the watch open and say nothing.
		watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for resp := range o.etcd.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(o.revision()+1), clientv3.WithProgressNotify()) {
			if resp.Err() != nil {
				break
			}
			o.take(resp)
		}
		cancel()
		sleep(ctx, 100*time.Millisecond)
	}
}

func (o *observer) revision() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

func (o *observer) take(resp clientv3.WatchResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range resp.Events {
		key := string(e.Kv.Key)
		if tenant, ok := strings.CutPrefix(key, epochPrefix); ok && e.Type == mvccpb.PUT {
			var grant struct{ Owner string }
			_ = json.Unmarshal(e.Kv.Value, &grant) // an owner that cannot be read is none
			o.held[tenant] = coord.Epoch(e.Kv.Version)
			o.record.Record(history.Event{Kind: history.Grant, Tenant: tenant, Replica: grant.Owner, Epoch: coord.Epoch(e.Kv.Version)})
		}
		if tenant, ok := strings.CutPrefix(key, ownerPrefix); ok && e.Type == mvccpb.DELETE {
			o.record.Record(history.Event{Kind: history.End, Tenant: tenant, Epoch: o.held[tenant], Text: "the owner's key is gone"})
		}
		o.seen = max(o.seen, e.Kv.ModRevision)
	}
	// The revision of any other response can be ahead of its events.
	if resp.IsProgressNotify() {
		o.seen = max(o.seen, resp.Header.Revision)
	}
}

// catchUp waits until everything that etcd has now is recorded.
func (o *observer) catchUp(ctx context.Context) error {
	var until int64
	err := waitFor(ctx, startTimeout, "etcd says its revision", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		resp, err := o.etcd.Get(ctx, prefix)
		if err == nil {
			until = resp.Header.Revision
		}
		return err
	})
	if err != nil {
		return err
	}
	return waitFor(ctx, startTimeout, "etcd's changes are recorded", func(ctx context.Context) error {
		if o.revision() >= until {
			return nil
		}
		return o.etcd.RequestProgress(clientv3.WithRequireLeader(ctx))
	})
}

// listen records what a replica itself tells of tenures that it flushed, whoever asked it to, until ctx
// ends.
func (o *observer) listen(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/v1/events", nil)
		if err != nil {
			return
		}
		if resp, err := o.client.Do(req); err == nil {
			o.hear(resp)
			resp.Body.Close()
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

func (o *observer) hear(resp *http.Response) {
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		var e struct {
			Kind, Key, Code string
			Epoch           coord.Epoch
			Flushed         bool
			Skipped         []json.RawMessage
		}
		if !isData || json.Unmarshal([]byte(data), &e) != nil {
			continue
		}
		o.mu.Lock()
		o.tales[e.Kind]++
		if len(e.Skipped) > 0 {
			o.tales[skippedCopies] += len(e.Skipped)
		}
		o.mu.Unlock()
		if e.Kind == "released" && e.Flushed && e.Code == "" {
			o.record.Record(history.Event{Kind: history.End, Tenant: e.Key, Epoch: e.Epoch, Flushed: true, Text: "released"})
		}
	}
}

func (o *observer) told() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]int, len(o.tales))
	for kind, n := range o.tales {
		all[kind] = n
	}
	return all
}

// probe asks etcd all the time, and adds up how long it answered nobody: no replica can do
// better meanwhile.
func (o *observer) probe(ctx context.Context) {
	since := time.Now()
	for sleep(ctx, 200*time.Millisecond) {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		_, err := o.etcd.Get(asking, "/probe")
		cancel()
		now := time.Now()
		if gap := now.Sub(since); gap > time.Second {
			o.mu.Lock()
			if err == nil {
				o.silent += gap
			}
			o.longest = max(o.longest, gap)
			o.mu.Unlock()
		}
		if err == nil {
			since = now
		}
	}
}

func (o *observer) silence() (total, longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.silent, o.longest
}
