//go:build linux

// Command chaos runs a fleet of real processes under faults and judges what its
// clients saw: three etcd members, three replicas, a directory or an S3 server for the
// copies, many tenants, a few clients, and a nemesis that follows a plan made from a seed. It
// kills and stops processes, cuts the network between any two of them, fills disks, and
// slows and stalls the store of the copies. Then the faults end, the fleet must serve
// again, every event is read back, and package history looks for violations.
//
// Each process has a network namespace of its own, and all of them live in namespaces of
// the run's own for processes, mounts and network: when the run ends, in whatever way, the kernel
// ends and removes all of it. That needs root. The same seed makes the same plan; what
// the machine makes of the plan differs from run to run.
//
// With the arguments "check" and a history.jsonl it only judges a history again.
//
// Not among the faults: steps of the wall clock. Linux has no namespace for it, and a run
// must not step the clock of the machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/leaseholddb/leasehold/test/gateway"
)

// A setup is what one run is told. It crosses into the run's namespaces as JSON.
type setup struct {
	Seed     uint64
	Duration time.Duration // of the faults
	StopEtcd time.Duration // longest stop of an etcd member
	Store    string        // storeDirectory or storeS3
	Tenants  int
	Clients  int

	Replica string // binary
	Gateway string // binary, for storeS3
	Work    string // for everything that the run needs while it lasts
	Out     string // for what it leaves
	Command string // that makes the run again
}

// The stores of the copies.
const (
	storeDirectory = "directory"
	storeS3        = "s3"
)

// stopGrace is what a run gets to end by itself once it was asked to.
const stopGrace = time.Minute

// errViolations says that the run was made and judged, and is not good.
var errViolations = errors.New("the run breaks what is promised, or shows too little")

func main() {
	runtime.LockOSThread() // a child's death signal is bound to the thread that started it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, os.Args[1:])
	switch {
	case errors.Is(err, errViolations):
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
}

// dispatch tells the command from the processes of a run that are made of it.
func dispatch(ctx context.Context, args []string) error {
	if len(args) == 2 {
		switch args[0] {
		case "inside":
			return inside(ctx, args[1])
		case "member":
			return runMember(args[1])
		case "check":
			return checkFile(args[1])
		}
	}
	if len(args) > 1 && args[0] == "relay" {
		return runRelays(args[1:])
	}
	return outside(ctx, args)
}

// outside prepares and starts one run for each store, in namespaces.
func outside(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	base := setup{}
	flags.Uint64Var(&base.Seed, "seed", 1, "of the plan of faults")
	flags.DurationVar(&base.Duration, "duration", time.Minute, "how long faults happen")
	flags.DurationVar(&base.StopEtcd, "stop-etcd", defaultStopEtcd, "longest stop of an etcd member; more than the default breaks what etcd itself promises")
	stores := flags.String("store", "both", storeDirectory+", "+storeS3+" or both, one after the other")
	flags.IntVar(&base.Tenants, "tenants", 100, "how many tenants")
	flags.IntVar(&base.Clients, "clients", 10, "how many clients at once")
	flags.StringVar(&base.Out, "out", "chaos-out", "directory for histories, reports and logs")
	flags.StringVar(&base.Replica, "replica", "", "replica binary (default: build it)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var runs []string
	switch *stores {
	case storeDirectory, storeS3:
		runs = []string{*stores}
	case "both":
		runs = []string{storeDirectory, storeS3}
	default:
		return fmt.Errorf("store %q is neither %s nor %s nor both", *stores, storeDirectory, storeS3)
	}
	if base.Tenants < 1 || base.Clients < 1 || base.Duration < minDuration || base.StopEtcd < time.Second {
		return fmt.Errorf("at least one tenant, one client, %v, and a second for stops of etcd are needed", minDuration)
	}
	if os.Geteuid() != 0 {
		return errors.New("a run makes namespaces and mounts, for which it needs root")
	}
	return runAll(ctx, base, runs)
}

func runAll(ctx context.Context, base setup, stores []string) (err error) {
	work, err := os.MkdirTemp("", "leasehold-chaos-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if base.Replica == "" {
		base.Replica = filepath.Join(work, "replica")
		build := exec.CommandContext(ctx, "go", "build", "-o", base.Replica, "./cmd/replica")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the replica: %w", err)
		}
	}
	var bad []string
	for _, store := range stores {
		one := base
		one.Store = store
		one.Work = filepath.Join(work, store)
		one.Command = fmt.Sprintf("go run ./test/chaos -store %s -seed %d -duration %v -stop-etcd %v -tenants %d -clients %d", store, base.Seed, base.Duration, base.StopEtcd, base.Tenants, base.Clients)
		if one.Out, err = filepath.Abs(filepath.Join(base.Out, fmt.Sprintf("%s-%d", store, base.Seed))); err != nil {
			return err
		}
		if store == storeS3 {
			if one.Gateway, err = gateway.Install(ctx); err != nil {
				return err
			}
		}
		switch err := isolated(ctx, one); {
		case errors.Is(err, errViolations):
			bad = append(bad, store)
		case err != nil:
			return fmt.Errorf("run on %s: %w", store, err)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%w: %s", errViolations, strings.Join(bad, ", "))
	}
	return nil
}

// isolated starts this command again in namespaces of its own. It is the first process there, so
// that its end is the end of every other.
func isolated(ctx context.Context, one setup) error {
	for _, dir := range []string{one.Work, one.Out} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "inside", string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGTERM, // it undoes its faults: processes that wait for a frozen disk could not even be killed
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return errViolations
	default:
		return err
	}
}
