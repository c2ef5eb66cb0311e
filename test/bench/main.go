// Command bench measures what leasehold costs, each figure against a named
// reference in the same run, prints a table and writes bench.json. With -strict it
// exits with 1 if a figure misses its limit or could not be taken.
//
// A ratio is the median over several rounds in which ours and the reference take
// turns, so that a noisy machine moves both sides.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
)

// A suite measures one part of the product. Its files begin with its name.
type suite struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

var suites = []suite{
	{"guard", benchGuard},
	{"lease", benchLease},
	{"copies", benchCopies},
	{"handoff", benchHandoff},
	{"scale", benchScale},
}

func main() {
	if what := os.Getenv(childVariable); what != "" {
		if err := runChild(what); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "comma-separated suites to run; all if empty")
	out := flag.String("json", "bench.json", "where to write the figures")
	short := flag.Bool("short", false, "do a tenth of what takes long: the figures mean little")
	strict := flag.Bool("strict", false, "exit with 1 if a figure misses its limit or could not be taken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := run(ctx, *only, *out, *short)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if err != nil || *strict && missed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, only, out string, short bool) (missed int, err error) {
	b := &bench{short: short}
	spoilt := 0
	for _, s := range suites {
		if only != "" && !strings.Contains(","+only+",", ","+s.name+",") {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", s.name)
		err := s.run(ctx, b)
		switch {
		case err == nil:
		case tooBusy(err):
			spoilt++
			why, _, _ := strings.Cut(err.Error(), "\n")
			fmt.Fprintf(os.Stderr, "bench: %s was not measured to its end, since this machine is too busy: %s\n", s.name, why)
		default:
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	text, err := json.MarshalIndent(b.rows, "", "  ")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
		return 0, err
	}
	return b.print() + spoilt, nil
}

// print writes the table and returns how many figures miss their limits.
func (b *bench) print() (missed int) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tvalue\tlimit\t\tours\treference")
	for _, r := range b.rows {
		verdict := "ok"
		if !r.ok() {
			verdict, missed = "MISSED", missed+1
		}
		sign := "≤"
		if r.Better == higher {
			sign = "≥"
		}
		fmt.Fprintf(w, "%s\t%.3g %s\t%s %.3g\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, sign, r.Limit, verdict, r.Ours, r.Reference)
	}
	w.Flush()
	return missed
}
