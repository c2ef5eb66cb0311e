package fencing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseholddb/leasehold/internal/safeguards"
)

// A scope is the driver.Connector behind one handle: it lends connections of the
// database to it, and can take them back while they are in use.
type scope struct {
	db     *Database
	extra  Gate     // nil if the database's gate is all
	reads  ReadGate // the database's gate; nil if it or extra is none
	more   ReadGate // extra
	closed atomic.Bool
	// keysOff is what every connection of the handle follows; see followKeys.
	keysOff atomic.Bool
	done    chan struct{} // closed together with the scope
	handle  *sql.DB
	ending  sync.Once // of reclaim

	mu struct {
		sync.Mutex
		conns map[*conn]struct{} // lent
	}
}

func (d *Database) newScope(gate Gate) *scope {
	s := &scope{db: d, extra: gate, done: make(chan struct{})}
	s.reads, _ = d.gate.(ReadGate)
	if s.more, _ = gate.(ReadGate); gate != nil && s.more == nil {
		s.reads = nil
	}
	s.mu.conns = make(map[*conn]struct{})
	s.handle = sql.OpenDB(s)
	s.handle.SetMaxIdleConns(d.opts.IdleConnections)
	d.mu.Lock()
	closed := d.mu.closed
	if !closed {
		d.mu.scopes[s] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		s.shut()
	}
	return s
}

// check is the question before a commit and before an acknowledgement.
func (s *scope) check() error {
	if s.closed.Load() {
		return closedError("handle")
	}
	if err := s.db.gate.Check(); err != nil {
		return err
	}
	if s.extra != nil {
		return s.extra.Check()
	}
	return nil
}

// checkRead is the question before anything else.
func (s *scope) checkRead() error {
	if s.reads == nil {
		return s.check()
	}
	if s.closed.Load() {
		return closedError("handle")
	}
	if safeguards.Off(safeguards.GateBefore) {
		return nil
	}
	if err := s.reads.CheckRead(); err != nil {
		return err
	}
	if s.more != nil {
		return s.more.CheckRead()
	}
	return nil
}

// Connect implements driver.Connector.
func (s *scope) Connect(ctx context.Context) (driver.Conn, error) {
	if err := s.checkRead(); err != nil {
		return nil, err
	}
	r, err := s.db.get(ctx, s.done)
	if err != nil {
		return nil, err
	}
	c := &conn{scope: s, raw: r, gone: make(chan struct{})}
	c.cancel = newCancellation(c)
	r.holder = c
	s.mu.Lock()
	s.mu.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.closed.Load() {
		// Whoever closed the scope may have looked before c was there.
		c.Close()
		return nil, closedError("handle")
	}
	return c, nil
}

// Driver implements driver.Connector.
func (s *scope) Driver() driver.Driver { return guardDriver{} }

// Close implements io.Closer for sql.DB.Close, which has closed the idle
// connections by then and would wait for nobody.
func (s *scope) Close() error {
	s.shut()
	ctx, cancel := context.WithTimeout(context.Background(), s.db.opts.CloseTimeout)
	defer cancel()
	return s.end(ctx)
}

// end reclaims once; whoever comes second waits for the first.
func (s *scope) end(ctx context.Context) (err error) {
	s.ending.Do(func() { err = s.reclaim(ctx) })
	return err
}

// shut makes everything of the scope refuse from now on.
func (s *scope) shut() {
	if s.closed.CompareAndSwap(false, true) {
		close(s.done)
	}
	s.db.mu.Lock()
	delete(s.db.mu.scopes, s)
	s.db.mu.Unlock()
}

// reclaim takes back every lent connection. Those inside a call are interrupted
// and given back by the call as it leaves; reclaim waits for that until ctx ends.
func (s *scope) reclaim(ctx context.Context) error {
	var running []*conn
	for _, c := range s.lent() {
		if disposed, _ := c.takeBack(); !disposed {
			running = append(running, c)
		}
	}
	for i, c := range running {
		if !c.await(ctx) {
			return fmt.Errorf("close handle: %d calls are still running: %w", len(running)-i, ctx.Err())
		}
	}
	return nil
}

func (s *scope) lent() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	return conns
}

func (s *scope) returned(c *conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
}

// interruptEvery is how often a call that does not end is interrupted again: an
// interrupt that finds it between two statements is lost.
const interruptEvery = 20 * time.Millisecond

// await waits until the condemned c is gone, and reports false when ctx ends
// first. The goroutine that interrupts ends with the call it interrupts.
func (c *conn) await(ctx context.Context) bool {
	go c.interruptUntilGone()
	select {
	case <-c.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *conn) interruptUntilGone() {
	ticker := time.NewTicker(interruptEvery)
	defer ticker.Stop()
	for {
		c.stop.Lock()
		if !c.stop.disposed {
			c.stop.interrupted = true
			c.raw.stop(&c.stop.pending)
		}
		c.stop.Unlock()
		select {
		case <-c.gone:
			return
		case <-ticker.C:
		}
	}
}
