//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// enter makes the run's namespaces usable: mounts do not spread, /proc shows the run's
// processes, and the network is a hub that forwards between hosts.
func enter() error {
	steps := []struct {
		what string
		err  error
	}{
		{"keep mounts to ourselves", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")},
		{"mount /proc", syscall.Mount("proc", "/proc", "proc", 0, "")},
		// ip keeps its names of namespaces there, and ours must not be seen outside.
		{"mount /run", syscall.Mount("tmpfs", "/run", "tmpfs", 0, "size=1m")},
		{"forward packets", os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)},
		{"start loopback", ip("link", "set", "lo", "up")},
	}
	for _, step := range steps {
		if step.err != nil {
			return fmt.Errorf("%s: %w", step.what, step.err)
		}
	}
	return nil
}

func ip(args ...string) error { return tool("ip", args...) }

// A network is a hub with hosts around it. Each host has a network namespace and one
// link; between any two of them the hub can be told to drop what passes.
type network struct {
	hosts int
	mu    sync.Mutex // one change of the rules at a time
}

// A host is a network namespace with an address.
type host struct {
	name    string
	address string
}

func (n *network) host(name string) (*host, error) {
	n.hosts++
	h := &host{name: name, address: fmt.Sprintf("10.77.%d.2", n.hosts)}
	gateway := fmt.Sprintf("10.77.%d.1", n.hosts)
	for _, args := range []string{
		"netns add " + name,
		"link add name " + name + " type veth peer name eth0 netns " + name,
		"addr add " + gateway + "/24 dev " + name,
		"link set dev " + name + " up",
		"-n " + name + " addr add " + h.address + "/24 dev eth0",
		"-n " + name + " link set dev eth0 up",
		"-n " + name + " link set dev lo up",
		"-n " + name + " route add default via " + gateway,
	} {
		if err := ip(strings.Fields(args)...); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// cut drops every packet from one host to the other, silently. The other way is a cut of
// its own.
func (n *network) cut(from, to *host) error { return n.rule("add", from, to) }

func (n *network) mend(from, to *host) error { return n.rule("del", from, to) }

func (n *network) rule(verb string, from, to *host) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return ip("rule", verb, "from", from.address, "to", to.address, "blackhole")
}

// command runs a program on the host. It keeps its process id through ip, which
// becomes the program, with a mount namespace of its own.
func (h *host) command(program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", h.name, program}, args...)...)
}

// dialTimeout is what a relay gives the other side to take a connection.
const dialTimeout = 5 * time.Second

// runRelays passes connections on, for each pair from=to. A replica serves on loopback only and
// advertises that address: on its own host connections come in from the host's address, and
// on the others the same loopback address leads to it.
func runRelays(pairs []string) error {
	failed := make(chan error, len(pairs))
	for _, pair := range pairs {
		from, to, _ := strings.Cut(pair, "=")
		go func() { failed <- relay(from, to) }()
	}
	return <-failed
}

func relay(from, to string) error {
	l, err := net.Listen("tcp", from)
	if err != nil {
		return err
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.DialTimeout("tcp", to, dialTimeout)
			if err != nil {
				return // what it leads to is down, and the client sees the connection end
			}
			defer server.Close()
			go func() {
				defer server.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(server, client) // either side may be killed
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}
