package etcdlease_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/fencing"
)

// A proxy stands between a Store and etcd. While it is deaf it accepts connections
// and bytes and passes nothing on, as a peer does that lost its power.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu struct {
		sync.Mutex
		conns []net.Conn
		open  *sync.Cond // broadcast when deaf or closed changes
		deaf  bool
		ended bool
	}
}

func newProxy(t *testing.T, endpoint string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(endpoint, "http://")}
	p.mu.open = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.mu.ended = true
		p.mu.open.Broadcast()
		for _, c := range p.mu.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) setDeaf(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.deaf = deaf
	p.mu.open.Broadcast()
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.mu.conns = append(p.mu.conns, in, out)
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(in, out) })
		p.wg.Go(func() { p.pass(out, in) })
	}
}

func (p *proxy) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.mu.deaf && !p.mu.ended {
			p.mu.open.Wait()
		}
		p.mu.Unlock()
		if _, werr := to.Write(buffer[:n]); werr != nil || err != nil {
			_, _ = io.Copy(io.Discard, from)
			return
		}
	}
}

// Traps 4, 11 and 12: a connection that passes nothing any more costs no call longer
// than its request's time, the gate closes by the clock, and nobody is granted the
// key before that.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	p := newProxy(t, endpoints[0])
	s := open(t, nil, timeout(impatient), func(c *etcdlease.Config) { c.Endpoints = []string{p.listener.Addr().String()} })
	other := open(t, nil)
	const leaseTTL, margin = 12 * time.Second, 3 * time.Second
	lease, err := fencing.Acquire(t.Context(), s, key(t, 1), "a", fencing.LeaseOptions{TTL: leaseTTL, Margin: margin})
	if err != nil {
		t.Fatal(err)
	}
	p.setDeaf(true)
	granted := make(chan time.Time, 1)
	go func() {
		if err := other.WaitReleased(t.Context(), key(t, 1)); err != nil {
			t.Error(err)
		}
		granted <- time.Now()
	}()
	wantCode(t, lease.Renew(t.Context()), coord.CodeLeaseStoreUnavailable)
	closed := time.Time{}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for closed.IsZero() {
		<-ticker.C
		if lease.Check() != nil {
			closed = time.Now()
		}
	}
	if free := <-granted; free.Before(closed) {
		t.Errorf("the key was free %v before the gate closed", closed.Sub(free))
	}
	acquire(t, other, key(t, 1), "b", ttl)
	p.setDeaf(false)
	if err := insist(t, func() error { return lease.Renew(t.Context()) }); err == nil {
		t.Error("the old holder was renewed")
	} else {
		wantCode(t, err, coord.CodeLeaseLost)
	}
}

// Trap 12: of two endpoints one goes deaf; every renewal succeeds within TTL/2.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	p := newProxy(t, endpoints[0])
	s := open(t, nil, timeout(8*time.Second), func(c *etcdlease.Config) {
		c.Endpoints = []string{p.listener.Addr().String(), endpoints[0]}
	})
	const leaseTTL = 32 * time.Second
	g := acquire(t, s, key(t, 1), "a", leaseTTL)
	p.setDeaf(true)
	for range 4 {
		began := time.Now()
		if _, err := s.Renew(t.Context(), g.Tenure, leaseTTL); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > leaseTTL/2 {
			t.Errorf("a renewal took %v", took)
		}
	}
}
