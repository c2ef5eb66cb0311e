//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// restartPause keeps a process that cannot start, such as a replica without its etcd, from
// spinning.
const restartPause = 500 * time.Millisecond

// A process is a program that is kept running while it is wanted.
type process struct {
	name    string
	command func() *exec.Cmd
	log     string // file that its output is added to
	wake    chan struct{}
	done    chan struct{} // closed when supervise has returned

	mu struct {
		sync.Mutex
		wanted bool
		asked  bool      // the process that runs was told to end
		cmd    *exec.Cmd // nil while none runs
		exits  int       // that nobody asked for
		last   error     // of the latest of those
		code   int       // of the latest exit
	}
}

func newProcess(name, log string, command func() *exec.Cmd) *process {
	return &process{name: name, command: command, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// supervise starts the process whenever it is wanted and does not run, until ctx ends.
// Then it kills it.
func (p *process) supervise(ctx context.Context) {
	defer close(p.done)
	for ctx.Err() == nil {
		if !p.isWanted() {
			select {
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := p.run(ctx)
		p.mu.Lock()
		if !p.mu.asked && ctx.Err() == nil {
			p.mu.exits++
			p.mu.last = err
		}
		p.mu.Unlock()
		sleep(ctx, restartPause)
	}
}

func (p *process) isWanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.wanted
}

// run starts the process and returns when it has ended.
func (p *process) run(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is ours to handle
	p.mu.Lock()
	if !p.mu.wanted {
		p.mu.Unlock()
		return nil
	}
	if err := cmd.Start(); err != nil {
		p.mu.Unlock()
		return err
	}
	p.mu.cmd, p.mu.asked = cmd, false
	p.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.mu.cmd, p.mu.code = nil, cmd.ProcessState.ExitCode()
		p.mu.Unlock()
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		p.signal(syscall.SIGKILL)
		err = <-ended
	}
	return err
}

// up wants the process to run.
func (p *process) up() {
	p.mu.Lock()
	p.mu.wanted = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // it is awake
	}
}

// down sends a signal that ends the process, which does not start again until it is
// wanted.
func (p *process) down(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.wanted, p.mu.asked = false, true
	p.signalLocked(s)
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signalLocked(s)
}

func (p *process) signalLocked(s syscall.Signal) {
	if p.mu.cmd != nil {
		_ = p.mu.cmd.Process.Signal(s) // it may have ended
	}
}

// pid is 0 while the process does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.cmd == nil {
		return 0
	}
	return p.mu.cmd.Process.Pid
}

// waitDown waits until the process has ended after down.
func (p *process) waitDown(ctx context.Context) error {
	for p.pid() != 0 {
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s did not end: %w", p.name, ctx.Err())
		}
	}
	return nil
}

// exitCode is the code of the latest exit, -1 after a signal.
func (p *process) exitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.code
}

// unasked says how often the process ended by itself, and why it last did.
func (p *process) unasked() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.exits, p.mu.last
}

// sleep returns false if ctx ends first.
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

// waitFor repeats a check until it succeeds, and gives up with its last error.
func waitFor(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%s: not within %v: %w", what, limit, errors.Join(err, ctx.Err()))
		}
	}
}
