package etcdlease_test

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// A member is an etcd with settings that embedetcd does not offer. It can be
// stopped and started on the same addresses and data.
type member struct {
	t      *testing.T
	config func() *embed.Config
	etcd   *embed.Etcd
}

// newMember starts an etcd with what change changes.
func newMember(t *testing.T, scheme string, change func(*embed.Config)) *member {
	t.Helper()
	dir, client, peer := filepath.Join(t.TempDir(), "etcd"), url.URL{Scheme: scheme, Host: embedetcd.FreeAddrT(t)}, url.URL{Scheme: "http", Host: embedetcd.FreeAddrT(t)}
	m := &member{t: t, config: func() *embed.Config {
		c := embed.NewConfig()
		c.Name, c.Dir = "secure", dir
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.InitialCluster = c.InitialClusterFromName(c.Name)
		c.EnableGRPCGateway, c.UnsafeNoFsync = false, true
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		change(c)
		return c
	}}
	m.start()
	t.Cleanup(func() { m.etcd.Close() })
	return m
}

func (m *member) start() {
	m.t.Helper()
	etcd, err := embed.StartEtcd(m.config())
	if err != nil {
		m.t.Fatal(err)
	}
	m.etcd = etcd
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		m.t.Fatal(err)
	}
}

func (m *member) endpoints() []string { return []string{m.config().ListenClientUrls[0].String()} }

const (
	authenticateMethod = "/etcdserverpb.Auth/Authenticate"
	tokenTTL           = time.Second // the shortest that etcd knows
	admin              = "admin"
	adminPassword      = "of the admin"
)

// cheapPasswords makes hashing them, which is slow under the race detector, as quick as
// it can be.
func cheapPasswords(c *embed.Config) { c.BcryptCost = 4 }

// newMemberWithUsers starts an etcd that asks for a password and forgets tokens
// soon.
func newMemberWithUsers(t *testing.T) *member {
	t.Helper()
	m := newMember(t, "http", func(c *embed.Config) {
		cheapPasswords(c)
		c.AuthTokenTTL = uint(tokenTTL / time.Second)
	})
	c := clientOf(t, m.endpoints())
	_, e1 := c.UserAdd(t.Context(), admin, adminPassword)
	_, e2 := c.UserGrantRole(t.Context(), admin, "root")
	if err := errors.Join(e1, e2); err != nil {
		t.Fatal(err)
	}
	setUpUsers(t, c)
	return m
}

func asUser(m *member) func(*etcdlease.Config) {
	return func(c *etcdlease.Config) {
		c.Endpoints, c.Username, c.Password = m.endpoints(), "leasehold", "pw"
		c.Prefix = "/leasehold/"
	}
}

// Trap 20: after the token has expired, and after a restart of etcd, which forgets all
// tokens, the store works on and its watches are made again.
func TestTokenExpiresAndMemberRestarts(t *testing.T) {
	t.Parallel()
	m := newMemberWithUsers(t)
	w := &wire{}
	s, other := open(t, w, asUser(m)), open(t, nil, asUser(m))
	register(t, s, "owner")
	register(t, other, "asker")
	mine := acquire(t, s, key(t, 1), "owner", 10*time.Minute)
	told := watchWants(t, s)
	works := func(n int) {
		t.Helper()
		theirs := acquire(t, other, key(t, 10+n), "other", 10*time.Minute)
		freed := make(chan error, 1)
		go func() { freed <- s.WaitReleased(t.Context(), theirs.Tenure.Key) }()
		if err := renewErr(t, s, mine.Tenure, 10*time.Minute); err != nil {
			t.Errorf("renew: %v", err)
		}
		want(t, other, key(t, 20+n), "asker")
		if got := <-told; got.Key != key(t, 20+n) {
			t.Errorf("was told of %v", got)
		}
		if err := other.Release(t.Context(), theirs.Tenure); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := <-freed; err != nil {
			t.Errorf("wait: %v", err)
		}
	}
	works(1)

	before := w.count(authenticateMethod)
	idle := time.NewTimer(3 * tokenTTL) // nothing else tells that a token has expired
	<-idle.C
	works(2)
	if w.count(authenticateMethod) == before {
		t.Error("the token did not expire: the test shows nothing")
	}

	m.etcd.Close()
	m.start()
	works(3)
}

// A password that is wrong from now on costs an attempt for each thing that is tried,
// and what goes on in the background tries every now and then.
const (
	watchedFor  = 4 * time.Second
	maxAttempts = 10 * int(watchedFor/time.Second)
)

// Trap 20: a password that does not hold any more is a clear error for whoever waits
// or watches, and nothing asks again in a hot loop.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	m := newMemberWithUsers(t)
	w := &wire{}
	s := open(t, w, asUser(m))
	register(t, s, "owner")
	held := acquire(t, s, key(t, 1), "owner", 10*time.Minute)
	// A lease that does not end: the end would be told on a watch that etcd goes on with.
	waited := key(t, 3)
	hold(t, m, waited, 2*time.Second)
	ended := make(chan error, 2)
	go func() { ended <- s.WaitReleased(t.Context(), waited) }()
	go func() { ended <- s.WatchWants(t.Context(), func(coord.Want) {}) }()
	changePassword(t, m)

	before := w.count(authenticateMethod)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, coord.CodeLeaseStoreUnavailable) || !strings.Contains(hintOf(err), "password") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	refused("renew", renewErr(t, s, held.Tenure, 10*time.Minute))
	_, err := s.Acquire(t.Context(), key(t, 2), "owner", 10*time.Minute)
	refused("acquire", err)
	for range 2 { // as soon as they look again
		refused("wait or watch", <-ended)
	}
	watched := time.NewTimer(watchedFor)
	<-watched.C
	if n := w.count(authenticateMethod) - before; n == 0 || n > maxAttempts {
		t.Errorf("%d attempts with a wrong password", n)
	}
}

func asAdmin(t *testing.T, m *member) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: m.endpoints(), Username: admin, Password: adminPassword})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// hold writes the owner key of somebody whose leases have ttl and who keeps this one.
func hold(t *testing.T, m *member, k coord.Key, ttl time.Duration) {
	t.Helper()
	value := fmt.Sprintf(`{"owner":"somebody","ttl_ms":%d}`, ttl.Milliseconds())
	if _, err := asAdmin(t, m).Put(t.Context(), "/leasehold/owner/"+k.String(), value); err != nil {
		t.Fatal(err)
	}
}

func changePassword(t *testing.T, m *member) {
	t.Helper()
	c := asAdmin(t, m)
	if _, err := c.UserChangePassword(t.Context(), "leasehold", "another"); err != nil {
		t.Fatal(err)
	}
}
