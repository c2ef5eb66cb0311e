package embedetcd

import (
	"context"
	"time"
)

const testStartTimeout = 30 * time.Second

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
