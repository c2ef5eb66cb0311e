package fencing_test

import (
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/coordtest"
	"github.com/leaseholddb/leasehold/coord/memlease"
	"github.com/leaseholddb/leasehold/fencing"
)

// A statement that writes commits when its result set is closed. If its connection was
// taken back before, what it wrote is gone, and closing says so, however it was written.
func TestCloseOfTakenRowsIsNoAcknowledgement(t *testing.T) {
	for _, query := range []string{
		insertRow + " RETURNING id",
		"WITH x(v) AS (VALUES ('x')) INSERT INTO t(v) SELECT v FROM x RETURNING id",
	} {
		d := openGuarded(t, newTestGate(), nil)
		mustExec(t, d.DB(), "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
		scoped := d.Scoped(nil)
		rows, err := scoped.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		if err := scoped.Close(); err != nil {
			t.Fatal(err)
		}
		wantCode(t, query, rows.Close(), coord.CodeHandleClosed)
		if n := count(t, d.DB(), "t"); n != 0 {
			t.Errorf("%s: %d rows", query, n)
		}
	}
}

// Cleanup needs no lease: a result set that only reads closes well after its handle.
func TestCloseOfTakenRowsThatReadIsNoError(t *testing.T) {
	d := openGuarded(t, newTestGate(), nil)
	scoped := d.Scoped(nil)
	rows, err := scoped.Query("SELECT 1 UNION SELECT 2")
	if err != nil {
		t.Fatal(err)
	}
	if err := scoped.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
}

// A clockAt calls back when it is read.
type clockAt struct {
	coord.Clock
	read func()
}

func (c *clockAt) Now() time.Duration {
	now := c.Clock.Now()
	c.read()
	return now
}

// A release that begins while the gate is being asked shuts it: who asks may have been
// stopped on the way for as long as the next owner needs.
func TestReleaseDuringCheckShutsTheGate(t *testing.T) {
	var clock coordtest.Clock
	at := &clockAt{Clock: &clock, read: func() {}}
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := fencing.Acquire(bg, memlease.New(&clock), key, "A", fencing.LeaseOptions{TTL: 10 * time.Second, Margin: time.Second, Clock: at})
	if err != nil {
		t.Fatal(err)
	}
	at.read = func() {
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
	}
	wantCode(t, "Check", lease.Check(), coord.CodeFenced)
}
