// Command s3test runs what is said of durable copies against a real S3 server:
// the conformance suite, and the zombie, crash, corruption and stall tests of
// copystore, and a replica that keeps its copies there. It installs the server, starts it on loopback with a directory of
// its own, and stops it. Its arguments go to go test.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/test/gateway"
)

const (
	bucket       = "copies"
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "s3test:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	binary, err := gateway.Install(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "leasehold-s3-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	s, err := startServer(ctx, binary, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()

	test := exec.CommandContext(ctx, "go", append([]string{"test", "-tags", "s3", "-timeout", "20m"},
		append(args, "./copystore/blobstore", "./copystore", "./cmd/replica")...)...)
	test.Env = append(gateway.ClientEnv(), "LEASEHOLD_TEST_S3=s3://"+bucket+"?endpoint=http://"+s.address)
	test.Stdout, test.Stderr = os.Stdout, os.Stderr
	if err := test.Run(); err != nil {
		return fmt.Errorf("tests on %s: %w", gateway.Module, err)
	}
	return s.checkEmpty()
}

// A server is a running gateway to a directory.
type server struct {
	address string
	data    string // its directories are buckets
	process *exec.Cmd
	ended   chan error // one slot
}

func startServer(ctx context.Context, binary, work string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &server{address: address, data: filepath.Join(work, "data"), ended: make(chan error, 1)}
	if err := os.MkdirAll(filepath.Join(s.data, bucket), 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(work, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.process = exec.Command(binary, gateway.Args(address, s.data)...)
	s.process.Env = gateway.ServerEnv()
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() { s.ended <- s.process.Wait() }()
	if err := s.waitHealthy(ctx); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("%w; the server said: %s", err, said), s.stop())
	}
	return s, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *server) waitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/health", nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *server) stop() error {
	_ = s.process.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	err := s.process.Process.Kill()
	<-s.ended
	return errors.Join(errors.New("the server had to be killed"), err)
}

// checkEmpty looks for what the tests left: objects, and parts of uploads.
func (s *server) checkEmpty() error {
	var left []string
	err := filepath.WalkDir(filepath.Join(s.data, bucket), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			left = append(left, path)
		}
		return err
	})
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("the tests left %d objects, such as %s", len(left), left[0]))
	}
	return err
}
