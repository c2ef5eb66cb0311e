package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/fencing"
)

// memberVariable makes the test binary a member of an etcd cluster instead.
const memberVariable = "LEASEHOLD_TEST_ETCD_MEMBER"

// A memberConfig is what such a process is told.
type memberConfig struct {
	Name, Dir, Client, Peer, Cluster string
}

// runMember serves until the process is killed.
func runMember(text string) error {
	var m memberConfig
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = m.Name, m.Dir, m.Cluster
	client, peer := url.URL{Scheme: "http", Host: m.Client}, url.URL{Scheme: "http", Host: m.Peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.LogLevel, cfg.UnsafeNoFsync = "fatal", true
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-etcd.Err()
}

// A cluster is three members in three processes.
type cluster struct {
	t         *testing.T
	endpoints []string
	processes map[string]*exec.Cmd // by endpoint
	client    *clientv3.Client
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, processes: make(map[string]*exec.Cmd)}
	var members []memberConfig
	var initial []string
	for i := range 3 {
		m := memberConfig{Name: fmt.Sprintf("m%d", i), Dir: t.TempDir(), Client: embedetcd.FreeAddrT(t), Peer: embedetcd.FreeAddrT(t)}
		members = append(members, m)
		initial = append(initial, m.Name+"=http://"+m.Peer)
	}
	for _, m := range members {
		m.Cluster = strings.Join(initial, ",")
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGCONT)
			cmd.Process.Kill()
			cmd.Wait()
		})
		c.endpoints = append(c.endpoints, "http://"+m.Client)
		c.processes["http://"+m.Client] = cmd
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	c.client = client
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := client.Put(ctx, "/up", "")
		if err == nil {
			return c
		}
		if !pause(ctx, 100*time.Millisecond) {
			t.Fatalf("the cluster did not come up: %v", err)
		}
	}
}

// leader returns the leader's endpoint and id, and the id of another member.
func (c *cluster) leader() (endpoint string, id, other uint64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for pause(ctx, 10*time.Millisecond) {
		for _, e := range c.endpoints {
			asked, stop := context.WithTimeout(ctx, time.Second)
			status, err := c.client.Status(asked, e)
			stop()
			switch {
			case err != nil:
			case status.Leader == status.Header.MemberId:
				endpoint, id = e, status.Leader
			default:
				other = status.Header.MemberId
			}
		}
		if id != 0 && other != 0 {
			return endpoint, id, other
		}
	}
	c.t.Fatal("the cluster has no leader")
	return "", 0, 0
}

func (c *cluster) leases(endpoints ...string) *etcdlease.Store {
	c.t.Helper()
	s, err := etcdlease.Open(c.t.Context(), etcdlease.Config{Endpoints: endpoints, Options: etcdlease.Options{RequestTimeout: 5 * time.Second}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { s.Close() })
	return s
}

// keepRenewing renews as a replica does, sooner and sooner when it fails, until ctx
// ends, and reports what the lease comes to.
func keepRenewing(ctx context.Context, l *fencing.Lease, every time.Duration) error {
	for wait := every; pause(ctx, wait); {
		if l.Remaining() <= 0 {
			return fmt.Errorf("%s is fenced: %w", l.Tenure().Key, l.Check())
		}
		attempt, cancel := context.WithTimeout(ctx, max(100*time.Millisecond, l.Remaining()/2))
		err := l.Renew(attempt)
		cancel()
		switch {
		case errors.Is(err, coord.CodeLeaseLost):
			return err
		case err != nil:
			wait = min(every, max(50*time.Millisecond, l.Remaining()/4))
		default:
			wait = every
		}
	}
	return nil
}

// Traps 5, 7: the leader of a three-member etcd moves every two seconds, and no
// tenant of a thousand is lost or changes its epoch.
func TestLeaderMoves(t *testing.T) {
	c := startCluster(t)
	store := c.leases(c.endpoints...)
	const ttl = 20 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var holders sync.WaitGroup
	forEach(t, numberedKeys(t, *clusterTenants), func(key coord.Key) error {
		l, err := fencing.Acquire(ctx, store, key, "a", fencing.LeaseOptions{TTL: ttl, Margin: 4 * time.Second})
		if err != nil {
			return err
		}
		holders.Go(func() {
			if err := keepRenewing(ctx, l, ttl/3); err != nil {
				t.Errorf("lost while the leader moved: %v", err)
			}
			if l.Tenure().Epoch != 1 {
				t.Errorf("%s is at epoch %d", key, l.Tenure().Epoch)
			}
		})
		return nil
	})
	const enough = 3
	moves := 0
	began := time.Now()
	for took := time.Since(began); took < *clusterTime || moves < enough && took < patience; took = time.Since(began) {
		pause(ctx, 2*time.Second)
		endpoint, _, other := c.leader()
		leader, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		asked, stop := context.WithTimeout(ctx, 5*time.Second)
		if _, err := leader.MoveLeader(asked, other); err == nil {
			moves++
		}
		stop()
		leader.Close()
	}
	cancel()
	holders.Wait()
	if moves < enough {
		t.Errorf("the leader moved only %d times: the test shows nothing", moves)
	}
	t.Logf("%d tenants, the leader moved %d times", *clusterTenants, moves)
}

// Traps 2, 12: the leader is stopped for twice the TTL, and one holder knows no other
// member. Before the next grant its gate is shut, and its fence lies before it, read
// on one clock.
func TestStoppedLeader(t *testing.T) {
	c := startCluster(t)
	endpoint, _, _ := c.leader()
	var others []string
	for _, e := range c.endpoints {
		if e != endpoint {
			others = append(others, e)
		}
	}
	const ttl = 8 * time.Second
	opts := fencing.LeaseOptions{TTL: ttl, Margin: 2 * time.Second}
	key := numberedKeys(t, 1)[0]
	a, b := c.leases(endpoint), c.leases(others...)
	old, err := fencing.Acquire(t.Context(), a, key, "a", opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var renewing sync.WaitGroup
	renewing.Go(func() { _ = keepRenewing(ctx, old, ttl/3) }) // it must fail in the end
	defer renewing.Wait()
	defer cancel()

	c.processes[endpoint].Process.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	deadline, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var next *fencing.Lease
	for next == nil {
		if err := b.WaitReleased(deadline, key); err != nil {
			t.Fatal(err)
		}
		// From here on anybody may be granted the key, so the old gate must be shut.
		if left := old.Remaining(); left > 0 || old.Check() == nil {
			t.Fatalf("two holders: the key is free and the old fence is %v ahead", left)
		}
		next, err = fencing.Acquire(deadline, b, key, "b", opts)
		if err != nil && !pause(deadline, 20*time.Millisecond) {
			t.Fatal(err)
		}
	}
	took := time.Since(stopped)
	if took < ttl-opts.Margin {
		t.Errorf("the next grant came %v after the stop, before the old fence", took)
	}
	if next.Tenure().Epoch != 2 {
		t.Errorf("epoch %d, want 2", next.Tenure().Epoch)
	}
	pause(t.Context(), 2*ttl-took) // the leader sleeps on, for twice the TTL in all
	c.processes[endpoint].Process.Signal(syscall.SIGCONT)
	asked, stopAsking := context.WithTimeout(t.Context(), patience)
	defer stopAsking()
	for err = nil; err == nil || errors.Is(err, coord.CodeLeaseStoreUnavailable); {
		if err = old.Renew(asked); err == nil {
			t.Fatal("the old holder was renewed at an epoch that is over")
		}
		if old.Check() == nil {
			t.Fatal("the old holder's gate opened again")
		}
		pause(asked, 20*time.Millisecond)
	}
	t.Logf("the next holder was granted %v after the leader stopped; the TTL is %v", took.Round(time.Millisecond), ttl)
}
