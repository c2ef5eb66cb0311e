package fencing_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is its own second process: with this variable set it runs one of
// the roles instead of the tests.
const roleVariable = "LEASEHOLD_FENCING_TEST_ROLE"

// roles read their orders from the standard input and write their report to the
// standard output, both as JSON.
var roles = map[string]func(orders) (report, error){
	"writer": pausedWriter,
	"reader": outsideReader,
}

type orders struct {
	Path  string
	Pause string // for the writer: where to stop
	TTL   int    // milliseconds
	Fence int    // milliseconds after the grant
}

type report struct {
	Code   string // of the write
	Rows   int    // in the file as the process sees it
	Resume string // outcome of a renewal and one more write; "" if both succeeded
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func play(role string) error {
	var o orders
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&o); err != nil {
		return err
	}
	r, err := roles[role](o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// A process is this test binary in a role.
type process struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	errs bytes.Buffer
}

func startRole(t *testing.T, role string, o orders) *process {
	t.Helper()
	in, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = bytes.NewReader(in), &p.out, &p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// awaitStop returns once the process has stopped itself.
func (p *process) awaitStop(t *testing.T) {
	t.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the process did not stop: %v, status %v: %s", err, status, p.errs.String())
		}
		return
	}
}

func (p *process) report(t *testing.T) (r report) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, p.errs.String())
	}
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %q", err, p.out.String())
	}
	return r
}
