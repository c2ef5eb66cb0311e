package coordtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// RaceProcesses runs the test binary n times with env added to the environment,
// which must make its TestMain do this and no tests: prepare a store, print "ready",
// read a byte from standard input, acquire one key, and print "granted" or "held"
// and the owner and epoch that the store named. When all are ready it lets them go
// at once. It returns the owner that was granted, and fails the test unless exactly
// one was and all others were told that owner, at one epoch.
func RaceProcesses(t *testing.T, n int, env string) (winner string) {
	t.Helper()
	type process struct {
		cmd *exec.Cmd
		in  io.Closer
		out *bufio.Scanner
	}
	var all []process
	for range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), env)
		cmd.Stderr = os.Stderr
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if inErr != nil || outErr != nil {
			t.Fatal(inErr, outErr)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it has ended unless the test failed
			_ = cmd.Wait()
		})
		all = append(all, process{cmd, in, bufio.NewScanner(out)})
	}
	for _, p := range all {
		if !p.out.Scan() || p.out.Text() != "ready" {
			t.Fatalf("process %d says %q before the race", p.cmd.Process.Pid, p.out.Text())
		}
	}
	for _, p := range all {
		_ = p.in.Close()
	}
	granted, told := 0, make(map[string]int)
	for _, p := range all {
		p.out.Scan()
		outcome, holder, _ := strings.Cut(p.out.Text(), " ")
		if outcome == "granted" {
			granted++
		} else if outcome != "held" {
			t.Errorf("process %d says %q", p.cmd.Process.Pid, p.out.Text())
		}
		told[holder]++
		winner, _, _ = strings.Cut(holder, " ")
	}
	if granted != 1 || len(told) != 1 {
		t.Errorf("%d processes were granted the lease, and it was said to belong to %v", granted, fmt.Sprint(told))
	}
	return winner
}
