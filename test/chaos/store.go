//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leaseholddb/leasehold/test/gateway"
)

// A copyStore is where the copies are, and how it is treated badly.
type copyStore interface {
	flag() string  // what a replica is told
	env() []string // of a replica
	// stall stops every call to the store until resume.
	stall() error
	resume() error
	// cut keeps one replica from the store until mend.
	cut(*node) error
	mend(*node) error
	dir() string // of the disk that can be filled
}

const (
	copiesSize = 2 << 30 // of the disk of the copies
	memorySize = "1g"    // of each replica's and each etcd member's, in memory
	s3Port     = ":7070"
	bucket     = "copies"

	freeze, thaw = 0xc0045877, 0xc0045878 // FIFREEZE and FITHAW of linux/fs.h
)

// makeDisk mounts a file system of a fixed size from a file, so that it can be filled and
// frozen. Where there is no loop device it is one in memory, which can be filled only.
func makeDisk(work, name string) (string, error) {
	image, dir := filepath.Join(work, name+".img"), filepath.Join(work, name)
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, copiesSize), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	err := errors.Join(tool("mkfs.ext4", "-q", "-m", "0", image), tool("mount", "-o", "loop", image, dir))
	if err != nil {
		fmt.Println("  the disk of the copies is in memory and cannot be frozen:", err)
		err = tool("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", copiesSize), "tmpfs", dir)
	}
	if err != nil {
		return "", err
	}
	return dir, os.Mkdir(filepath.Join(dir, bucket), 0o755)
}

// memoryDisk mounts a file system of a fixed size that no other load on the machine can slow
// down.
func memoryDisk(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, tool("mount", "-t", "tmpfs", "-o", "size="+memorySize, "tmpfs", dir)
}

func tool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// A directoryStore is a directory on a disk of its own.
type directoryStore struct{ disk string }

func (d *directoryStore) flag() string  { return filepath.Join(d.disk, bucket) }
func (d *directoryStore) env() []string { return os.Environ() }
func (d *directoryStore) dir() string   { return d.disk }

// The file system is frozen: writes wait, and so do the syncs of those before.
func (d *directoryStore) stall() error  { return d.ioctl(freeze) }
func (d *directoryStore) resume() error { return d.ioctl(thaw) }

func (d *directoryStore) ioctl(request uint) error {
	f, err := os.Open(d.disk)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), request, 0); err != nil {
		return os.NewSyscallError("ioctl", err)
	}
	return nil
}

// cut makes the mount read-only in the replica's mount namespace. It is refused while
// a file is open for writing, so it is asked for again.
func (d *directoryStore) cut(n *node) error {
	return waitFor(context.Background(), 3*time.Second, "cut from the copies", func(context.Context) error {
		return d.remount(n, "remount,bind,ro")
	})
}

func (d *directoryStore) mend(n *node) error { return d.remount(n, "remount,bind,rw") }

func (d *directoryStore) remount(n *node, options string) error {
	pid := n.process.pid()
	if pid == 0 {
		return nil // the next process has mounts as they were
	}
	return tool("nsenter", "-m", "-t", strconv.Itoa(pid), "mount", "-o", options, d.disk)
}

// An s3Store is a server on a host of its own.
type s3Store struct {
	disk    string
	network *network
	host    *host
	process *process
}

func newS3Store(s setup, n *network) (*s3Store, error) {
	disk, err := makeDisk(s.Work, "s3")
	if err != nil {
		return nil, err
	}
	h, err := n.host("s3")
	if err != nil {
		return nil, err
	}
	return &s3Store{disk: disk, network: n, host: h, process: newProcess("s3", filepath.Join(s.Out, "s3.log"), func() *exec.Cmd {
		cmd := h.command(s.Gateway, gateway.Args(h.address+s3Port, disk)...)
		cmd.Env = gateway.ServerEnv()
		return cmd
	})}, nil
}

func (s *s3Store) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host.address+s3Port+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (s *s3Store) flag() string {
	return "s3://" + bucket + "?endpoint=http://" + s.host.address + s3Port
}
func (s *s3Store) env() []string { return gateway.ClientEnv() }
func (s *s3Store) dir() string   { return s.disk }

func (s *s3Store) stall() error  { s.process.signal(syscall.SIGSTOP); return nil }
func (s *s3Store) resume() error { s.process.signal(syscall.SIGCONT); return nil }

func (s *s3Store) cut(n *node) error {
	return errors.Join(s.network.cut(n.host, s.host), s.network.cut(s.host, n.host))
}

func (s *s3Store) mend(n *node) error {
	return errors.Join(s.network.mend(n.host, s.host), s.network.mend(s.host, n.host))
}

const ballast = "ballast"

// fill leaves no room on a disk; empty gives it back.
func fill(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	f, err := os.Create(filepath.Join(dir, ballast))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize); err != nil && !errors.Is(err, unix.ENOSPC) {
		return os.NewSyscallError("fallocate", err)
	}
	// Others write meanwhile, and there is always a little left.
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

func empty(dir string) error { return os.Remove(filepath.Join(dir, ballast)) }
