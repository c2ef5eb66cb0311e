package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaseholddb/leasehold/sim"
)

// simFlags are what replica sim is asked for.
type simFlags struct {
	campaign sim.Campaign
	faults   string
	report   string
	trace    bool
}

func newSimCommand() *cobra.Command {
	f := simFlags{campaign: sim.Campaign{Config: sim.Config{
		Seed: 1, Replicas: sim.DefaultReplicas, Tenants: sim.DefaultTenants, Clients: sim.DefaultClients, Steps: sim.DefaultSteps,
	}}}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Try this program out against simulated stores, clocks, crashes and partitions",
		Long: `Try this program out against simulated stores, clocks, crashes and partitions.

What serves tenants runs unchanged, several replicas of it in one process, on
simulated time. From each seed follow what clients ask for, what goes wrong and in
which order everything happens, so one seed always makes the same history, on every
machine. Every history is checked against what is guaranteed.

If one breaks a guarantee, the exit status is 1, and what is printed makes it
happen again, with the shortest list of faults that was found to do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	c := &f.campaign
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "the first seed")
	flags.IntVar(&c.Seeds, "seeds", 1, "how many seeds, each of which makes a history")
	flags.IntVar(&c.Replicas, "replicas", c.Replicas, "how many replicas")
	flags.IntVar(&c.Tenants, "tenants", c.Tenants, "how many tenants")
	flags.IntVar(&c.Clients, "clients", c.Clients, "how many clients")
	flags.IntVar(&c.Steps, "steps", c.Steps, "how many steps of a history have faults; then it must recover")
	flags.IntVar(&c.Workers, "workers", 0, "how many histories are made at once (default one for each processor)")
	flags.StringVar(&f.faults, "faults", "", "read the faults, one a line, from `FILE` (- is the standard input) in place of those of the seed")
	flags.StringVar(&f.report, "report", "", "write a page with the timeline of the last history, or of the one that failed, to `FILE`")
	flags.BoolVar(&f.trace, "trace", false, "print every step to the standard error; for one seed")
	return cmd
}

var errSimulation = errors.New("a guarantee was broken")

func (f *simFlags) run(ctx context.Context, in io.Reader, out, progress io.Writer) error {
	if err := f.readFaults(in); err != nil {
		return err
	}
	c := f.campaign
	if f.trace {
		c.Trace, c.Workers = progress, 1
	}
	began, shown := time.Now(), time.Now()
	c.Each = func(s sim.Stats) {
		if !f.trace && time.Since(shown) >= 2*time.Second {
			shown = time.Now()
			fmt.Fprintf(progress, "%d of %d histories, %d faults, %.0f simulated hours, %v\n",
				s.Histories, c.Seeds, s.Faults, s.Simulated.Hours(), time.Since(began).Round(time.Second))
		}
	}
	stats, failed, err := c.Run(ctx)
	if err != nil {
		return err
	}
	if failed == nil {
		printStats(out, stats, time.Since(began))
		if f.report != "" {
			return f.reportOf(ctx, out)
		}
		return ctx.Err()
	}
	fmt.Fprintf(progress, "seed %d fails with %d faults; looking for fewer\n", failed.Config.Seed, len(failed.Config.Faults))
	smallest, err := sim.Shrink(*failed)
	if err != nil {
		return err
	}
	printFailure(out, smallest)
	printStats(out, stats, time.Since(began))
	if err := f.write(smallest, out); err != nil {
		return err
	}
	return errSimulation
}

func (f *simFlags) readFaults(in io.Reader) error {
	if f.faults == "" {
		return nil
	}
	read := func() ([]byte, error) { return os.ReadFile(f.faults) }
	if f.faults == "-" {
		read = func() ([]byte, error) { return io.ReadAll(in) }
	}
	text, err := read()
	if err == nil {
		f.campaign.Faults, err = sim.ParseFaults(string(text))
	}
	if err != nil {
		return fmt.Errorf("--faults: %w", err)
	}
	return nil
}

// reportOf makes the last history once more: a campaign keeps none of them.
func (f *simFlags) reportOf(ctx context.Context, out io.Writer) error {
	cfg := f.campaign.Config
	cfg.Seed += uint64(max(f.campaign.Seeds, 1) - 1)
	r, err := sim.Run(cfg)
	if err != nil {
		return err
	}
	return errors.Join(f.write(r, out), ctx.Err())
}

// write writes the report, if one is asked for.
func (f *simFlags) write(r sim.Result, out io.Writer) error {
	if f.report == "" {
		return nil
	}
	file, err := os.Create(f.report)
	if err != nil {
		return err
	}
	err = r.WriteReport(file)
	if err = errors.Join(err, file.Close()); err == nil {
		_, err = fmt.Fprintf(out, "report      %s\n", f.report)
	}
	return err
}

func printStats(out io.Writer, s sim.Stats, took time.Duration) {
	fmt.Fprintf(out, `histories   %d in %v, %.0f a minute, %d steps
simulated   %.1f hours
faults      %d
takeovers   %d
handoffs    %d, %d of them to a named replica
waits       %d that ended with the tenant
writes      %d acknowledged, %d of them given up with their tenure, as declared
reads       %d
outage      %v at the longest
`, s.Histories, took.Round(time.Second/10), float64(s.Histories)/took.Minutes(), s.Steps, s.Simulated.Hours(),
		s.Faults, s.Takeovers, s.Handoffs, s.Moves, s.Waits, s.Writes, s.Lost, s.Reads, s.LongestOutage.Round(time.Second/10))
}

func printFailure(out io.Writer, r sim.Result) {
	for _, v := range r.Violations {
		fmt.Fprintf(out, "%s\n", v)
	}
	fmt.Fprintf(out, "\nMake it happen again:\n\n%s\n\n", r.Config.Command())
}
