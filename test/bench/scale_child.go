package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// childVariable makes this binary serve one of the references in a process of its own,
// so that what it costs is not counted as ours.
const childVariable = "LEASEHOLD_BENCH_CHILD"

var children = map[string]func(dir string) (address string, stop func() error, err error){
	"etcd": serveEtcd,
	"http": serveNothing,
}

// runChild serves until its standard input ends, which it does with the parent.
func runChild(what string) error {
	name, dir, _ := strings.Cut(what, ":")
	address, stop, err := children[name](dir)
	if err != nil {
		return err
	}
	fmt.Println(address)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, stop())
}

func serveEtcd(dir string) (string, func() error, error) {
	server, err := embedetcd.Start(context.Background(), embedetcd.Config{Dir: dir})
	if err != nil {
		return "", nil, err
	}
	return server.Endpoints()[0], server.Close, nil
}

// serveNothing is the empty handler: it reads what it is sent, as every handler does.
func serveNothing(string) (string, func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			w.WriteHeader(http.StatusCreated)
		}
	})}
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), server.Close, nil
}

// A child is a process that this benchmark started.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
}

// startChild starts this binary as a child and returns when it serves.
func startChild(name, dir string) (*child, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+name+":"+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin}
	if c.address, err = c.start(func(line string) (string, bool) { return line, true }); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// start runs the process until address finds what it looks for in a line of output.
func (c *child) start(address func(line string) (string, bool)) (string, error) {
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	c.cmd.Stderr = os.Stderr
	if err := c.cmd.Start(); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if found, ok := address(lines.Text()); ok {
			go io.Copy(io.Discard, stdout) // ends with the process
			return found, nil
		}
	}
	return "", errors.Join(errors.New("it ended before it served"), lines.Err(), c.cmd.Wait())
}

// stop ends the process in its own way and waits for it.
func (c *child) stop() error {
	if c.stdin != nil {
		return errors.Join(c.stdin.Close(), c.cmd.Wait())
	}
	return errors.Join(c.cmd.Process.Signal(os.Interrupt), c.cmd.Wait())
}
