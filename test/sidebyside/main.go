// Command sidebyside does the same harm to two ways of guarding a database: a plain
// SQLite file behind etcd's concurrency.Mutex, and a tenant of leasehold. On each
// side clients, a process each, take the lock, read a register, think, and write it
// back with their update added. Whoever holds the lock is stopped for longer than
// the lease lives, again and again, at moments and for times that a seed says. In
// the end every update that a client was told is done must be in the register.
//
// The plain side is what careful users do: the session is checked before the commit
// and again before the update counts as acknowledged. What is to be seen is that no
// such check can help: a pause may come behind it. How many updates that costs follows
// from how long the write takes, which is a setting.
//
// It exits with an error if leasehold lost an update, and if the plain side lost
// none: then the harm was too little to show anything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// settings are the same for both sides.
type settings struct {
	clients int
	ttl     time.Duration
	think   time.Duration // between the read and the check
	write   time.Duration // between the check and the commit, as a longer transaction takes
	time    time.Duration
	seed    uint64
}

func main() {
	var s settings
	var w worker
	flag.IntVar(&s.clients, "clients", 5, "clients on each side")
	flag.DurationVar(&s.ttl, "ttl", 2*time.Second, "time to live of the locks, in whole seconds")
	flag.DurationVar(&s.think, "think", 50*time.Millisecond, "between the read and the check of the lock")
	flag.DurationVar(&s.write, "write", 100*time.Millisecond, "between the check and the commit")
	flag.DurationVar(&s.time, "time", time.Minute, "how long the harm goes on")
	flag.Uint64Var(&s.seed, "seed", 1, "of the pauses")
	flag.StringVar(&w.side, "side", "", "be a client of this side, for the command itself")
	flag.StringVar(&w.name, "name", "", "of this client")
	flag.StringVar(&w.etcd, "etcd", "", "endpoint for this client")
	flag.StringVar(&w.dir, "dir", "", "directory of this client's side")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	w.settings = s
	do := s.compare
	if w.side != "" {
		do = w.run
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sidebyside:", err)
		os.Exit(1)
	}
}

func (s settings) compare(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "leasehold-sidebyside-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	etcd, err := embedetcd.Start(ctx, embedetcd.Config{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()

	endpoint := etcd.Endpoints()[0]
	sides := []*side{s.newSide("plain", endpoint, dir), s.newSide("leasehold", endpoint, dir)}
	for _, side := range sides {
		if err := side.guard.create(ctx); err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
	}
	rounds := 1
	for ; ; rounds++ {
		if err := s.round(ctx, sides); err != nil {
			return err
		}
		if verdict(sides[0], sides[1]) != errTooLittle || rounds == maxRounds {
			break
		}
	}
	return s.report(sides[0], sides[1], rounds)
}

// A round that shows nothing is followed by another one, up to so many.
const maxRounds = 12

// round does harm to both sides at once and counts what it did.
func (s settings) round(ctx context.Context, sides []*side) (err error) {
	results := make(chan error, len(sides))
	for _, side := range sides {
		go func() { results <- side.harm(ctx) }()
	}
	for range sides {
		err = errors.Join(err, <-results)
	}
	if err != nil {
		return err
	}
	for _, side := range sides {
		register, err := side.guard.read(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		side.count(register)
	}
	return nil
}

var errTooLittle = errors.New("the plain side lost nothing, or too few updates were acknowledged: the harm was too little to show anything")

func verdict(plain, ours *side) error {
	const enough = 10
	switch {
	case ours.lost > 0:
		return fmt.Errorf("leasehold lost %d acknowledged updates", ours.lost)
	case plain.lost == 0 || len(plain.acked) < enough || len(ours.acked) < enough:
		return errTooLittle
	}
	return nil
}

func (s settings) report(plain, ours *side, rounds int) error {
	fmt.Printf("%d clients on each side, TTL %v, %v from read to check, %v from check to commit, %v, seed %d\n\n", s.clients, s.ttl, s.think, s.write, time.Duration(rounds)*s.time, s.seed)
	fmt.Printf("%-40s %8s %13s %8s %8s %8s\n", "", "pauses", "acknowledged", "lost", "", "refused")
	for _, side := range []*side{plain, ours} {
		fmt.Printf("%-40s %8d %13d %8d %7.1f%% %8d\n", side.title, side.pauses, len(side.acked), side.lost, 100*float64(side.lost)/float64(max(len(side.acked), 1)), side.refused)
	}
	fmt.Printf("\nleasehold: %d updates had no copy yet when the lease ran out, so nobody was told that they last; %d of them did not.\n", len(ours.done), ours.uncopied)
	return verdict(plain, ours)
}
