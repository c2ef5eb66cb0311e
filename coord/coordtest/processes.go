package coordtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// raceKey is what the processes race for.
const raceKey = "acme/t-00000000000000000000000000000001"

// Racer is one process of [RaceProcesses]: it says on standard output that it is
// ready, waits for its standard input to close, tries once to acquire a key of store,
// and says who has it. It returns the process's exit status.
func Racer(store coord.LeaseStore) int {
	k, err := coord.ParseKey(raceKey)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	owner := fmt.Sprint("process-", os.Getpid())
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	g, err := store.Acquire(context.Background(), k, owner, time.Minute)
	var held *coord.LeaseHeldError
	switch {
	case err == nil:
		fmt.Println("granted", g.Owner, g.Epoch)
	case errors.As(err, &held):
		fmt.Println("held", held.Record.Owner, held.Record.Epoch)
	default:
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return 0
}

// RaceProcesses runs the test binary n times with env added to the environment,
// which must make its TestMain open a store and exit with [Racer], and run no tests.
// When all are ready it lets them go at once. It returns the owner that was granted, and fails the test unless exactly
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
