package etcdlease_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

func hintOf(err error) string {
	var ce *coord.Error
	if errors.As(err, &ce) {
		return ce.Hint
	}
	return ""
}

// LS-9: an unreachable store is unavailable, in bounded time.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts connections and never answers
	began := time.Now()
	_, err = etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: []string{l.Addr().String()}, Options: etcdlease.Options{RequestTimeout: 200 * time.Millisecond}})
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an own timeout looks like the caller's: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// LS-9: an answer that was not heard changes nothing; the caller's own context
// is recognised in the error.
func TestContextErrors(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	g := acquire(t, s, key(t, 1), "a", ttl)
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("because")
	cancel(because)
	_, acquireErr := s.Acquire(ctx, key(t, 2), "a", ttl)
	_, renewErr := s.Renew(ctx, g.Tenure, ttl)
	_, _, readErr := s.Read(ctx, key(t, 1))
	_, forgetErr := s.MarkForgotten(ctx, g.Tenure)
	_, listErr := s.List(ctx, "", "", 0)
	for op, err := range map[string]error{"acquire": acquireErr, "renew": renewErr, "read": readErr, "forget": forgetErr, "list": listErr} {
		if !errors.Is(err, coord.CodeLeaseStoreUnavailable) || !errors.Is(err, context.Canceled) || !errors.Is(err, because) {
			t.Errorf("%s: got %v", op, err)
		}
	}
	if g, err := s.Renew(t.Context(), g.Tenure, ttl); err != nil || g.Epoch != 1 {
		t.Errorf("afterwards: %+v, %v", g, err)
	}
	if n := countKeys(t, etcd(t), prefix(t)+"epoch/"); n != 1 {
		t.Errorf("%d records", n)
	}
}

// At etcd's quota nothing new is granted, and renewals and releases go on.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	server, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: t.TempDir(), UnsafeNoSync: true, QuotaBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: server.Endpoints(), Options: etcdlease.Options{RequestTimeout: patient}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g := acquire(t, s, key(t, 1), "a", ttl)
	kept := acquire(t, s, key(t, 3), "a", ttl)
	stop := keepRenewing(t, s, kept.Tenure, ttl)
	defer stop()
	fill(t, server.Endpoints())
	_, err = s.Acquire(t.Context(), key(t, 2), "a", ttl)
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	if !strings.Contains(hintOf(err), "quota") {
		t.Errorf("no hint in %v", err)
	}
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Error(err)
	}
	if err := s.Release(t.Context(), g.Tenure); err != nil {
		t.Error(err)
	}
}

func fill(t *testing.T, endpoints []string) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 1000 {
		if _, err := c.Put(t.Context(), "/filler", strings.Repeat("x", 100_000)); err != nil {
			return
		}
	}
	t.Fatal("the quota was not reached")
}

// Trap 20: a wrong password is a clear error.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	m := newMember(t, "http", cheapPasswords)
	setUpUsers(t, clientOf(t, m.endpoints()))
	dial := func(user, password, prefix string) (*etcdlease.Store, error) {
		return etcdlease.Open(t.Context(), etcdlease.Config{
			Endpoints: m.endpoints(), Username: user, Password: password, Options: etcdlease.Options{Prefix: prefix, RequestTimeout: patient},
		})
	}
	for name, who := range map[string][3]string{
		"wrong password": {"leasehold", "wrong"}, "nobody": {}, "no permission": {"leasehold", "pw", "/other/"},
	} {
		s, err := dial(who[0], who[1], who[2])
		if err == nil {
			s.Close()
			t.Errorf("%s: got in", name)
		} else if !errors.Is(err, coord.CodeLeaseStoreUnavailable) || hintOf(err) == "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	s, err := dial("leasehold", "pw", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g := acquire(t, s, key(t, 1), "a", ttl)
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Error(err)
	}
	if err := s.Release(t.Context(), g.Tenure); err != nil {
		t.Error(err)
	}
}

func setUpUsers(t *testing.T, admin *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	perm := clientv3.PermissionType(clientv3.PermReadWrite)
	// Hashing passwords takes time, so few users have one.
	_, e1 := admin.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
	_, e2 := admin.UserGrantRole(ctx, "root", "root")
	_, e3 := admin.UserAdd(ctx, "leasehold", "pw")
	_, e4 := admin.RoleAdd(ctx, "leasehold")
	_, e5 := admin.RoleGrantPermission(ctx, "leasehold", "/leasehold/", clientv3.GetPrefixRangeEnd("/leasehold/"), perm)
	_, e6 := admin.UserGrantRole(ctx, "leasehold", "leasehold")
	_, e7 := admin.AuthEnable(ctx)
	if err := errors.Join(e1, e2, e3, e4, e5, e6, e7); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsNameAllViolations(t *testing.T) {
	t.Parallel()
	_, err := etcdlease.Open(t.Context(), etcdlease.Config{
		Options:  etcdlease.Options{Prefix: "leases", Address: "a b", RequestTimeout: 1, KeysPerLease: -1},
		CertFile: "x", Username: "u",
	})
	wantCode(t, err, coord.CodeOptionsInvalid)
	for _, want := range []string{"Prefix", "Address", "RequestTimeout", "KeysPerLease", "Endpoints", "CertFile", "Username"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in %v", want, err)
		}
	}
	for _, bad := range []string{"/a", "a/", "//", "/a//b/", "/a b/", "/ä/"} {
		wantCode(t, (&etcdlease.Options{Prefix: bad}).Validate(), coord.CodeOptionsInvalid)
	}
	if err := (*etcdlease.Options)(nil).Validate(); err != nil {
		t.Error(err)
	}
	_, err = etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: endpoints, CAFile: t.TempDir() + "/none.pem"})
	wantCode(t, err, coord.CodeOptionsInvalid)
}
