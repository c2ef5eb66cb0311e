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
)

const (
	gateway        = "github.com/versity/versitygw/cmd/versitygw"
	gatewayVersion = "v1.8.0"
	bucket         = "copies"
	startTimeout   = 30 * time.Second
	stopTimeout    = 10 * time.Second
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
	binary, err := install(ctx)
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
	test.Env = append(s.env(), "LEASEHOLD_TEST_S3=s3://"+bucket+"?endpoint=http://"+s.address)
	test.Stdout, test.Stderr = os.Stdout, os.Stderr
	if err := test.Run(); err != nil {
		return fmt.Errorf("tests on %s: %w", gateway, err)
	}
	return s.checkEmpty()
}

// install puts the server into ./bin unless this version of it is there.
func install(ctx context.Context) (string, error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(bin, "versitygw-"+gatewayVersion)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	cmd := exec.CommandContext(ctx, "go", "install", gateway+"@"+gatewayVersion)
	cmd.Env = append(os.Environ(), "GOBIN="+bin)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("install %s: %w", gateway, err)
	}
	return binary, os.Rename(filepath.Join(bin, "versitygw"), binary)
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
	s.process = exec.Command(binary, "--port", address, "--health", "/health", "--quiet", "posix", s.data)
	s.process.Env = append(s.env(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
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

const accessKey, secretKey = "leasehold", "known-to-everybody-on-loopback"

// env holds no configuration of the user's.
func (s *server) env() []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey, "AWS_SESSION_TOKEN=",
		"AWS_REGION=us-east-1", "AWS_PROFILE=", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
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
