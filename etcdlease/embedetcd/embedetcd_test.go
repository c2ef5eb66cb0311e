package embedetcd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg embedetcd.Config) *embedetcd.Server {
	t.Helper()
	cfg.UnsafeNoSync = true
	s, err := embedetcd.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, s *embedetcd.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func hostPort(s *embedetcd.Server) string { return strings.TrimPrefix(s.Endpoints()[0], "http://") }

func TestServesAndAdvertisesTheChosenPort(t *testing.T) {
	s := embedetcd.StartT(t)
	c := dial(t, s)
	if _, err := c.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	members, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := members.Members[0].ClientURLs; len(got) != 1 || got[0] != s.Endpoints()[0] {
		t.Errorf("advertised %v, serving at %v", got, s.Endpoints())
	}
	lease, err := c.Grant(t.Context(), 1)
	if err != nil || lease.TTL != 1 {
		t.Errorf("a lease of 1 s was granted as %+v, %v", lease, err)
	}
}

func TestRestartKeepsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	first := start(t, embedetcd.Config{Dir: dir})
	if _, err := dial(t, first).Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	resp, err := dial(t, start(t, embedetcd.Config{Dir: dir})).Get(t.Context(), "a")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("after a restart: %v, %v", resp, err)
	}
}

// Trap 25: the cause is returned, Close ends in time, and ports and goroutines are free again.
func TestTakenPort(t *testing.T) {
	for _, which := range []string{"client", "peer"} {
		t.Run(which, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			cfg := embedetcd.Config{Dir: t.TempDir()}
			if which == "client" {
				cfg.ClientAddr = l.Addr().String()
			} else {
				cfg.PeerAddr = l.Addr().String()
			}
			s, err := embedetcd.Start(t.Context(), cfg)
			if err == nil {
				s.Close()
				t.Fatal("started on a taken port")
			}
			var ce *coord.Error
			if !errors.As(err, &ce) || ce.Code != coord.CodeLeaseStoreUnavailable || ce.Hint == "" || !strings.Contains(err.Error(), l.Addr().String()) {
				t.Errorf("got %v", err)
			}
			goleak.VerifyNone(t, before)
			// The directory is not spoilt and not locked.
			start(t, embedetcd.Config{Dir: cfg.Dir}).Close()
		})
	}
}

// Trap 25.
func TestForeignDirectory(t *testing.T) {
	someEtcd := filepath.Join(t.TempDir(), "etcd")
	// With the same peer address a cluster that starts afresh has the same ids.
	peer := embedetcd.FreeAddrT(t)
	start(t, embedetcd.Config{Dir: someEtcd, PeerAddr: peer}).Close()

	notOurs := t.TempDir()
	if err := os.WriteFile(filepath.Join(notOurs, "thesis.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	unmarked := copyDir(t, someEtcd)
	if err := os.Remove(filepath.Join(unmarked, "leasehold-etcd.json")); err != nil {
		t.Fatal(err)
	}
	emptied := copyDir(t, someEtcd)
	if err := os.RemoveAll(filepath.Join(emptied, "member")); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	start(t, embedetcd.Config{Dir: other}).Close()
	exchanged := copyDir(t, someEtcd)
	if err := os.RemoveAll(filepath.Join(exchanged, "member")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(exchanged, "member"), os.DirFS(filepath.Join(other, "member"))); err != nil {
		t.Fatal(err)
	}
	garbled := copyDir(t, someEtcd)
	if err := os.WriteFile(filepath.Join(garbled, "leasehold-etcd.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for name, dir := range map[string]string{"files": notOurs, "unmarked etcd": unmarked, "data gone": emptied,
		"data exchanged": exchanged, "mark garbled": garbled, "not a directory": file} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			s, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: dir, PeerAddr: peer})
			if err == nil {
				s.Close()
				t.Fatal("started")
			}
			if !errors.Is(err, coord.CodeOptionsInvalid) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v", err)
			}
			goleak.VerifyNone(t, before)
		})
	}
}

func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	start(t, embedetcd.Config{Dir: dir})
	if s, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: dir}); !errors.Is(err, coord.CodeOptionsInvalid) {
		t.Fatalf("got %v, %v", s, err)
	}
}

// A client with an open watch does not hold Close up beyond its bound, and the
// port is free afterwards.
func TestCloseWithAWatcher(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := start(t, embedetcd.Config{Dir: t.TempDir()})
	c := dial(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := c.Watch(ctx, "a", clientv3.WithCreatedNotify())
	<-watch
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > embedetcd.CloseTimeout {
		t.Errorf("Close took %v", took)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	l, err := net.Listen("tcp", hostPort(s))
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	l.Close()
	cancel()
	c.Close()
	goleak.VerifyNone(t, before)
}

func TestStartHonoursItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	before := goleak.IgnoreCurrent()
	s, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir})
	if err == nil {
		// It was ready before it looked; that is allowed.
		s.Close()
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	goleak.VerifyNone(t, before)
}

func TestConfigNamesAllViolations(t *testing.T) {
	_, err := embedetcd.Start(t.Context(), embedetcd.Config{ClientAddr: "0.0.0.0:1", PeerAddr: "x", QuotaBytes: 1})
	if !errors.Is(err, coord.CodeOptionsInvalid) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"Dir", "ClientAddr", "PeerAddr", "QuotaBytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in %v", want, err)
		}
	}
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}
