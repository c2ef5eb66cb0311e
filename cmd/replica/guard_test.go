package main

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
)

// A file of tokens that is emptied or removed leaves its tokens in force, and that does not
// stay one line in the log that nobody saw: it is counted, and said again from time to time.
func TestStaleFilesAreCountedAndTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if _, err := run(t, "new-token", "--tokens", path, "operator", "on-call"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	live, err := access.NewLive(secret(path), access.Parse)
	if err != nil {
		t.Fatal(err)
	}
	before := live.Value()
	core, logs := observer.New(zapcore.DebugLevel)
	var stale atomic.Int64
	f := &watched{what: "tokens", refresh: live.Refresh, stale: &stale}
	now := time.Now()
	look := func(when string, wantStale int64, wantLines int) {
		t.Helper()
		f.check(zap.New(core), now)
		if n := len(logs.TakeAll()); n != wantLines || stale.Load() != wantStale {
			t.Errorf("%s: %d lines and %d files, want %d and %d", when, n, stale.Load(), wantLines, wantStale)
		}
		if live.Value() != before {
			t.Errorf("%s: the tokens are others", when)
		}
	}
	write := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look("while all is well", 0, 0)
	write(nil)
	look("emptied", 1, 1)
	now = now.Add(remindEvery - time.Second)
	look("still empty", 1, 0)
	now = now.Add(time.Second)
	look("reminded", 1, 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look("removed", 1, 1)
	look("still removed", 1, 0)
	write(text)
	look("back again", 0, 1)
	look("while all is well again", 0, 0)
}
