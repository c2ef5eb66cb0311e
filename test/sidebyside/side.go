package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A side is one way of guarding, with its clients.
type side struct {
	settings
	name, title    string
	endpoint, path string
	guard          guard

	mu struct {
		sync.Mutex
		lines [][]string // what the clients said
	}
	held   chan *client // whoever took the lock just now, if somebody listens
	random *rand.Rand   // both sides draw the same times
	rounds int

	acked    map[string]bool
	done     map[string]bool // but not acknowledged
	lost     int
	uncopied int
	refused  int
	pauses   int
}

func (s settings) newSide(name, endpoint, dir string) *side {
	w := worker{settings: s, side: name, name: "keeper", etcd: endpoint, dir: filepath.Join(dir, name)}
	side := &side{settings: s, name: name, endpoint: endpoint, path: w.dir, guard: w.guard(), held: make(chan *client)}
	side.random = rand.New(rand.NewPCG(s.seed, 0))
	side.title = side.guard.title()
	return side
}

// A client is a process of a side.
type client struct {
	cmd  *exec.Cmd
	stop io.Closer // its standard input: it ends when that does
	said chan struct{}
}

// harm starts the clients, stops whoever holds the lock again and again, and ends
// them all.
func (s *side) harm(ctx context.Context) (err error) {
	s.rounds++
	var clients []*client
	defer func() {
		for _, c := range clients {
			c.stop.Close()
		}
		for _, c := range clients {
			err = errors.Join(err, c.join())
		}
	}()
	for i := range s.clients {
		c, err := s.start(fmt.Sprintf("%s-%d-%d", s.name, s.rounds, i+1))
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	ctx, cancel := context.WithTimeout(ctx, s.time)
	defer cancel()
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(s.random.Int64N(int64(high-low)))
	}
	for sleep(ctx, between(200*time.Millisecond, time.Second)) {
		into, pause := between(0, s.think+s.write), s.ttl+between(time.Second, 3*time.Second)
		select {
		case c := <-s.held:
			sleep(ctx, into)
			if err := s.pause(ctx, c, pause); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	return nil
}

// pause stops a client and lets it go on, in any case.
func (s *side) pause(ctx context.Context, c *client, d time.Duration) error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if sleep(ctx, d) {
		s.pauses++
	}
	return c.cmd.Process.Signal(syscall.SIGCONT)
}

func (s *side) start(name string) (*client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-side", s.name, "-name", name, "-etcd", s.endpoint, "-dir", s.path,
		"-ttl", s.ttl.String(), "-think", s.think.String(), "-write", s.write.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &client{cmd: cmd, stop: in, said: make(chan struct{})}
	go s.listen(c, out)
	return c, nil
}

// listen collects what a client says.
func (s *side) listen(c *client, out io.Reader) {
	defer close(c.said)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		words := strings.Fields(lines.Text())
		s.mu.Lock()
		s.mu.lines = append(s.mu.lines, words)
		s.mu.Unlock()
		if words[0] == saidHolds {
			select {
			case s.held <- c:
			default:
			}
		}
	}
}

// endsWithin bounds how long a client may take to finish what it is doing.
const endsWithin = 2 * time.Minute

func (c *client) join() error {
	late := time.AfterFunc(endsWithin, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	<-c.said
	return c.cmd.Wait()
}

// count compares what the clients were told with what the register holds.
func (s *side) count(register string) {
	there := make(map[string]bool)
	for _, id := range strings.Fields(register) {
		there[id] = true
	}
	s.acked, s.done = make(map[string]bool), make(map[string]bool)
	s.lost, s.uncopied, s.refused = 0, 0, 0
	for _, words := range s.mu.lines {
		switch words[0] {
		case saidAcked:
			s.acked[words[1]] = true
			delete(s.done, words[1])
		case saidDone:
			s.done[words[1]] = true
		case saidRefused:
			s.refused++
		}
	}
	for id := range s.acked {
		if !there[id] {
			s.lost++
		}
	}
	for id := range s.done {
		if !there[id] {
			s.uncopied++
		}
	}
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
