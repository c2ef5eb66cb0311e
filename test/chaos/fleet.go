//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// How the replicas are set up. Everything is faster than in production, so that a run has many
// tenures in it.
const (
	leaseTTL      = 4 * time.Second
	leaseMargin   = 1500 * time.Millisecond // more than etcd's election timeout: a leader that was cut off renews for about that long
	snapshotEvery = 5 * time.Second
	drillEvery    = 20 * time.Second
	drainTimeout  = 10 * time.Second

	firstPort    = 8421 // of the replicas, which count up
	startTimeout = time.Minute
)

// A node is a replica and its host.
type node struct {
	name    string
	host    *host
	process *process
	state   string // directory, on a disk of its own
	listen  string // loopback address, which leads there from every replica's host
	url     string // for clients
}

// A member is a member of the etcd cluster and its host.
type member struct {
	name    string
	host    *host
	process *process
}

// A fleet is everything that runs.
type fleet struct {
	setup   setup
	self    string // the binary of this command, of which relays and members are made
	network *network
	store   copyStore
	members []*member
	nodes   []*node
	keys    []coord.Key
	record  *history.Recorder

	others []*process // relays, and the store's server
	client *http.Client
	stop   context.CancelFunc
	joined sync.WaitGroup // the supervisors
}

func (f *fleet) processes() []*process {
	all := append([]*process(nil), f.others...)
	for _, m := range f.members {
		all = append(all, m.process)
	}
	for _, n := range f.nodes {
		all = append(all, n.process)
	}
	return all
}

// startFleet returns when every replica serves. Close ends it, also after an error.
func startFleet(ctx context.Context, s setup, record *history.Recorder) (*fleet, error) {
	f := &fleet{setup: s, network: &network{}, record: record}
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	f.self = self
	f.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * s.Clients}}
	for i := range s.Tenants {
		key, err := coord.NewKey("acme", fmt.Sprintf("t-%032x", i+1))
		if err != nil {
			return f, err
		}
		f.keys = append(f.keys, key)
	}
	if err := errors.Join(f.makeStore(), f.makeMembers(), f.makeNodes()); err != nil {
		return f, err
	}
	var running context.Context
	running, f.stop = context.WithCancel(context.Background())
	for _, p := range f.processes() {
		f.joined.Go(func() { p.supervise(running) })
	}
	for _, p := range append(f.others, f.memberProcesses()...) {
		p.up()
	}
	if s3, ok := f.store.(*s3Store); ok {
		if err := waitFor(ctx, startTimeout, "the S3 server answers", s3.healthy); err != nil {
			return f, err
		}
	}
	for _, n := range f.nodes {
		n.process.up()
	}
	for _, n := range f.nodes {
		if err := waitFor(ctx, startTimeout, "replica "+n.name+" serves", func(ctx context.Context) error { return f.ready(ctx, n) }); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *fleet) memberProcesses() []*process {
	var all []*process
	for _, m := range f.members {
		all = append(all, m.process)
	}
	return all
}

func (f *fleet) makeStore() error {
	if f.setup.Store == storeS3 {
		s, err := newS3Store(f.setup, f.network)
		if err != nil {
			return err
		}
		f.store, f.others = s, append(f.others, s.process)
		return nil
	}
	disk, err := makeDisk(f.setup.Work, "copies")
	f.store = &directoryStore{disk: disk}
	return err
}

func (f *fleet) makeMembers() error {
	var cluster []string
	for i := range 3 {
		h, err := f.network.host(fmt.Sprintf("m%d", i))
		if err != nil {
			return err
		}
		f.members = append(f.members, &member{name: h.name, host: h})
		cluster = append(cluster, h.name+"=http://"+h.address+peerPort)
	}
	for _, m := range f.members {
		dir, err := memoryDisk(filepath.Join(f.setup.Work, m.name))
		if err != nil {
			return err
		}
		text, err := json.Marshal(memberConfig{
			Name: m.name, Dir: dir, Address: m.host.address, Cluster: strings.Join(cluster, ","),
		})
		if err != nil {
			return err
		}
		m.process = newProcess(m.name, f.log(m.name), func() *exec.Cmd { return m.host.command(f.self, "member", string(text)) })
	}
	return nil
}

func (f *fleet) makeNodes() error {
	for i, name := range []string{"a", "b", "c"} {
		h, err := f.network.host(name)
		if err != nil {
			return err
		}
		port := strconv.Itoa(firstPort + i)
		n := &node{name: name, host: h, listen: "127.0.0.1:" + port, url: "http://" + h.address + ":" + port}
		if n.state, err = memoryDisk(filepath.Join(f.setup.Work, "state-"+name)); err != nil {
			return err
		}
		n.process = newProcess(name, f.log(name), func() *exec.Cmd {
			cmd := h.command(f.setup.Replica, f.replicaArgs(n)...)
			cmd.Env = f.store.env()
			return cmd
		})
		f.nodes = append(f.nodes, n)
	}
	for _, n := range f.nodes {
		relays := []string{"relay"}
		for _, other := range f.nodes {
			outside := strings.TrimPrefix(other.url, "http://")
			if other == n {
				relays = append(relays, outside+"="+n.listen)
				continue
			}
			relays = append(relays, other.listen+"="+outside)
		}
		f.others = append(f.others, newProcess(n.name+"-relay", f.log(n.name+"-relay"), func() *exec.Cmd { return n.host.command(f.self, relays...) }))
	}
	return nil
}

func (f *fleet) replicaArgs(n *node) []string {
	return []string{
		"--name", n.name, "--listen", n.listen,
		"--state-dir", filepath.Join(n.state, "replica"), "--etcd", strings.Join(f.endpoints(), ","), "--copies", f.store.flag(),
		"--lease-ttl", leaseTTL.String(), "--lease-margin", leaseMargin.String(), "--snapshot-every", snapshotEvery.String(),
		"--drill-every", drillEvery.String(), "--drain-timeout", drainTimeout.String(),
	}
}

func (f *fleet) endpoints() []string {
	var all []string
	for _, m := range f.members {
		all = append(all, m.host.address+clientPort)
	}
	return all
}

func (f *fleet) log(name string) string { return filepath.Join(f.setup.Out, name+".log") }

func (f *fleet) ready(ctx context.Context, n *node) error {
	a, err := f.ask(ctx, n, http.MethodGet, "/readyz", nil)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d", a.status)
	}
	return err
}

// shutDown asks every replica to end and says how many did so with every tenant handed
// off.
func (f *fleet) shutDown(ctx context.Context) (clean int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*drainTimeout)
	defer cancel()
	for _, n := range f.nodes {
		n.process.down(syscall.SIGTERM)
	}
	var all []error
	for _, n := range f.nodes {
		if err := n.process.waitDown(ctx); err != nil {
			all = append(all, err)
			continue
		}
		if n.process.exitCode() == 0 {
			clean++
		}
	}
	return clean, errors.Join(all...)
}

// close ends every process. What is mounted goes with the namespaces.
func (f *fleet) close() {
	if f.stop != nil {
		f.stop()
	}
	f.joined.Wait()
	f.client.CloseIdleConnections()
}
