package embedetcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

const testStartTimeout = 2 * time.Minute

// TB is the part of testing.TB that [StartT] needs.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// StartT runs an etcd for one test, on free ports, in a directory of its own and
// without fsync. It fails the test if etcd does not start or does not stop.
func StartT(t TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testStartTimeout)
	defer cancel()
	s, err := Start(ctx, Config{Dir: t.TempDir(), UnsafeNoSync: true})
	if err != nil {
		t.Fatalf("start an etcd: %v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stop etcd: %v", err)
		}
	})
	return s
}

// Ports for what listens again at the same address, below those that the kernel gives to
// whoever asks for any.
const (
	firstPort = 20_000
	portCount = 10_000
)

// FreeAddrT returns an address on loopback that nothing listens on, and that no
// connection or listener gets by chance before the test uses it, or while the test has
// stopped what listens there.
func FreeAddrT(t TB) string {
	t.Helper()
	for range portAttempts {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(portCount)))
		if err != nil {
			continue // somebody has it
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatalf("free %s again: %v", addr, err)
		}
		return addr
	}
	t.Fatalf("%d ports from %d on are taken", portAttempts, firstPort)
	return ""
}
