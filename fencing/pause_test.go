package fencing_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/fencing/sqliteuri"
	"github.com/leaseholddb/leasehold/test/filelocks"
)

// A stoppingGate stops its whole process with SIGSTOP at one of the checks of a
// write.
type stoppingGate struct {
	lease *fencing.Lease
	pause string
	armed atomic.Bool
	n     atomic.Int64
}

// The places of orders.Pause. A write outside a transaction asks the gate before the
// work (as a read does), inside the commit, and after it.
const (
	beforeCommitCheck = "before the check inside the commit"
	afterCommitCheck  = "between the check inside the commit and the commit"
	afterCommit       = "between the commit and the acknowledgement"
)

func (g *stoppingGate) Check() error {
	if !g.armed.Load() {
		return g.lease.Check()
	}
	n := g.n.Add(1)
	if n == 1 && g.pause == beforeCommitCheck || n == 2 && g.pause == afterCommit {
		stopProcess()
	}
	err := g.lease.Check()
	if n == 1 && g.pause == afterCommitCheck {
		stopProcess()
	}
	return err
}

func (g *stoppingGate) CheckRead() error { return g.lease.CheckRead() }

// stopProcess sends the signal to this very thread: any other would stop the process
// while this one goes on for a moment.
func stopProcess() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// pausedWriter writes one row, is stopped on the way, and tells what it heard.
func pausedWriter(o orders) (r report, err error) {
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		return r, err
	}
	ttl := time.Duration(o.TTL) * time.Millisecond
	lease, err := fencing.Acquire(bg, memlease.New(coord.SystemClock()), key, "A", fencing.LeaseOptions{
		TTL: ttl, Margin: ttl - time.Duration(o.Fence)*time.Millisecond,
	})
	if err != nil {
		return r, err
	}
	gate := &stoppingGate{lease: lease, pause: o.Pause}
	d, err := fencing.OpenDatabase(bg, o.Path, gate, nil)
	if err != nil {
		return r, err
	}
	// What came before took a part of the time to the fence.
	if err := lease.Renew(bg); err != nil {
		return r, err
	}
	gate.armed.Store(true)
	err = noResult(d.DB().Exec(insertRow))
	gate.armed.Store(false)
	r.Code = string(coord.CodeOf(err))
	if err == nil {
		r.Code = "acknowledged"
	}
	if err := lease.Renew(bg); err != nil {
		r.Resume = string(coord.CodeOf(err))
	} else if err := noResult(d.DB().Exec(insertRow)); err != nil {
		r.Resume = err.Error()
	}
	if err := d.Close(); err != nil {
		return r, err
	}
	r.Rows, err = outsideCount(o.Path)
	return r, err
}

// Trap 2, with a real SIGSTOP: a process that is stopped for longer than its lease
// never acknowledges; what it heard is true; and a tenure that resumes keeps what it
// could not acknowledge, and works again.
func TestGuardStoppedProcess(t *testing.T) {
	const fence, ttl, long = 3000, 6000, 600_000
	for _, c := range []struct {
		pause string
		ttl   int // the store's
		want  report
	}{
		{beforeCommitCheck, ttl, report{Code: "FENCED", Rows: 0, Resume: "LEASE_LOST"}},
		{afterCommitCheck, ttl, report{Code: "OUTCOME_UNKNOWN", Rows: 1, Resume: "LEASE_LOST"}},
		{afterCommit, ttl, report{Code: "OUTCOME_UNKNOWN", Rows: 1, Resume: "LEASE_LOST"}},
		{beforeCommitCheck, long, report{Code: "FENCED", Rows: 1}},
		{afterCommitCheck, long, report{Code: "OUTCOME_UNKNOWN", Rows: 2}},
		{afterCommit, long, report{Code: "OUTCOME_UNKNOWN", Rows: 2}},
	} {
		name := "lost, " + c.pause
		wait := ttl * time.Millisecond
		if c.want.Resume == "" {
			name, wait = "resumed, "+c.pause, fence*time.Millisecond
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			made, err := fencing.OpenDatabase(bg, path, newTestGate(), &fencing.DatabaseOptions{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, made.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
			if err := made.Close(); err != nil {
				t.Fatal(err)
			}
			p := startRole(t, "writer", orders{Path: path, Pause: c.pause, TTL: c.ttl, Fence: fence})
			p.awaitStop(t)
			// The last renewal came before the stop, so this outlasts what it granted.
			awaitTime(t.Context(), wait)
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if got := p.report(t); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func awaitTime(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// outsideReader is another program that reads the file and closes it.
func outsideReader(o orders) (r report, err error) {
	r.Rows, err = outsideCount(o.Path)
	return r, err
}

func outsideCount(path string) (n int, err error) {
	uri, err := sqliteuri.File(path, "mode=rw&_busy_timeout=5000")
	if err != nil {
		return 0, err
	}
	db, err := sql.Open("sqlite3", uri)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRow("SELECT count(*) FROM t").Scan(&n)
	return n, err
}

// Trap 47: another program that reads the file sees what was acknowledged, and
// neither it nor anything done here makes a later write vanish.
func TestOutsideReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	d, err := fencing.OpenDatabase(bg, path, newTestGate(), &fencing.DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
	locks := filelocks.Of(t, path)
	for i := range 3 {
		mustExec(t, d.DB(), insertRow)
		if got := startRole(t, "reader", orders{Path: path}).report(t); got.Rows != 2*i+1 {
			t.Errorf("another program sees %d rows, want %d", got.Rows, 2*i+1)
		}
		if err := d.Image(bg, filepath.Join(t.TempDir(), "image.db")); err != nil {
			t.Error(err)
		}
		mustExec(t, d.DB(), insertRow)
		if _, err := d.Stats(); err != nil {
			t.Error(err)
		}
	}
	wantLocks(t, path, locks)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := outsideCount(path); err != nil || n != 6 {
		t.Errorf("%d rows are left of 6 (%v)", n, err)
	}
}
