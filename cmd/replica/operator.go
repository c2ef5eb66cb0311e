package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// An operatorCommand talks to the stores of running replicas. It takes its settings
// from where a replica takes them, so a replica's environment and file serve it too;
// shown are the flags that matter to it.
func operatorCommand(environ, shown []string, cmd *cobra.Command, run func(cmd *cobra.Command, cfg *config, args []string) error) *cobra.Command {
	cfg, file := defaultConfig(), ""
	cfg.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&file, configFlag, "", "read settings from this YAML `FILE`: flag names as keys")
	own := cmd.LocalNonPersistentFlags()
	own.VisitAll(func(f *pflag.Flag) {
		f.Hidden = defaultFlags().Lookup(f.Name) != nil && !slices.Contains(shown, f.Name)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cfg.load(cmd.Flags(), file, environ); err != nil {
			return err
		}
		return run(cmd, cfg, args)
	}
	return cmd
}

// defaultFlags are those of a serving replica.
func defaultFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	defaultConfig().addFlags(f)
	return f
}

func etcdFlags() []string {
	return []string{"etcd", "etcd-prefix", "etcd-ca", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file", "embedded-etcd-client"}
}

// reachLeases opens the lease store of running replicas: the etcd that is named, or
// else the one that a replica on this machine embeds.
func reachLeases(ctx context.Context, cfg *config) (*etcdlease.Store, error) {
	endpoints := cfg.Etcd
	if cfg.embedded() {
		endpoints = []string{cfg.EmbeddedEtcdClient}
	}
	return openLeases(ctx, cfg, endpoints, "", zap.NewNop())
}

func newLeasesCommand(environ []string) *cobra.Command {
	var organization, output string
	var heldOnly bool
	cmd := &cobra.Command{
		Use:   "leases",
		Short: "List who holds which tenant, since when, for how long, and what looks stuck",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&organization, "organization", "", "only this `ORGANIZATION`'s tenants")
	cmd.Flags().BoolVar(&heldOnly, "held", false, "only tenants that are held")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return operatorCommand(environ, etcdFlags(), cmd, func(cmd *cobra.Command, cfg *config, _ []string) error {
		if output != "table" && output != "json" {
			return fmt.Errorf("--output must be table or json, not %q", output)
		}
		leases, err := readLeases(cmd.Context(), cfg, organization, heldOnly)
		if err != nil {
			return err
		}
		if output == "json" {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(leases)
		}
		return printLeases(cmd.OutOrStdout(), leases, time.Now())
	})
}

// A leaseLine is one tenant as the lease store has it. Times are in ms.
type leaseLine struct {
	Organization string         `json:"organization"`
	Tenant       string         `json:"tenant"`
	Owner        string         `json:"owner"`
	Address      string         `json:"address"`
	Held         bool           `json:"held"`
	Epoch        coord.Epoch    `json:"epoch"`
	Revision     coord.Revision `json:"revision"`
	GrantedAt    int64          `json:"granted_at"`
	LeaseUntil   int64          `json:"lease_until"`
	ForgottenAt  coord.Epoch    `json:"forgotten_at"`
	Stuck        string         `json:"stuck,omitempty"`
}

func readLeases(ctx context.Context, cfg *config, organization string, heldOnly bool) (lines []leaseLine, err error) {
	store, err := reachLeases(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	lines = []leaseLine{}
	for after := ""; ; {
		records, err := store.List(ctx, organization, after, etcdlease.MaxListLimit)
		if err != nil || len(records) == 0 {
			return lines, err
		}
		stuck, err := store.Inspect(ctx, records)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.Held || !heldOnly {
				lines = append(lines, newLeaseLine(r, stuck[r.Key]))
			}
		}
		after = records[len(records)-1].Key.String()
	}
}

func newLeaseLine(r coord.Record, stuck string) leaseLine {
	return leaseLine{
		Organization: r.Key.Organization(), Tenant: r.Key.Tenant(), Owner: r.Owner, Address: r.Address, Held: r.Held,
		Epoch: r.Epoch, Revision: r.Revision, GrantedAt: r.GrantedAt.UnixMilli(), LeaseUntil: r.LeaseUntil.UnixMilli(),
		ForgottenAt: r.ForgottenAt, Stuck: stuck,
	}
}

func printLeases(out io.Writer, lines []leaseLine, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tEPOCH\tOWNER\tSINCE\tLASTS\tFORGOTTEN\tSTUCK")
	for _, l := range lines {
		owner, lasts := l.Owner, "over"
		if l.Held {
			lasts = "≤ " + time.UnixMilli(l.LeaseUntil).Sub(now).Round(100*time.Millisecond).String()
		} else {
			owner = "(" + owner + ")"
		}
		since := now.Sub(time.UnixMilli(l.GrantedAt)).Round(time.Second).String() + " ago"
		fmt.Fprintf(w, "%s/%s\t%d\t%s\t%s\t%s\t%d\t%s\n", l.Organization, l.Tenant, l.Epoch, owner, since, lasts, l.ForgottenAt, l.Stuck)
	}
	return w.Flush()
}
