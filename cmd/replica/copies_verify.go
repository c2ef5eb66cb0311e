package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// A verdict is what verifying one copy found.
type verdict struct {
	Key       coord.Key     `json:"key"`
	Copy      copystore.Ref `json:"copy"`
	InLineage bool          `json:"in_lineage"`
	OK        bool          `json:"ok"`
	Problem   string        `json:"problem,omitempty"`
	Events    int64         `json:"events"`
	Size      int64         `json:"size"` // in bytes
}

func (c *copiesCommand) verifyCommand() *cobra.Command {
	var temp string
	cmd := &cobra.Command{
		Use:   "verify ORG[/TENANT]",
		Short: "Put every copy of a tenant, or of all tenants of an organization, through the checks of a restore",
		Long: `Put every copy of a tenant, or of all tenants of an organization, through the
checks of a restore. Each is downloaded to a temporary file and removed again.
Exits with an error if a copy cannot be trusted.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, func(ctx context.Context, copies *copystore.Copies) error {
				keys, err := keysOf(ctx, copies, args[0])
				if err != nil {
					return err
				}
				verdicts := []verdict{}
				for i, key := range keys {
					fmt.Fprintf(cmd.ErrOrStderr(), "tenant %d of %d: %s\n", i+1, len(keys), key)
					found, err := verifyTenant(ctx, copies, key, temp, cmd.ErrOrStderr())
					verdicts = append(verdicts, found...)
					if err != nil {
						return err
					}
				}
				err = c.print(cmd.OutOrStdout(), verdicts, func(w io.Writer) error { return printVerdicts(w, verdicts) })
				return errors.Join(err, judge(verdicts))
			})
		},
	}
	cmd.Flags().StringVar(&temp, "temp-dir", os.TempDir(), "`DIR` with room for one ledger")
	return cmd
}

// keysOf returns the tenant that text names, or all of the organization.
func keysOf(ctx context.Context, copies *copystore.Copies, text string) ([]coord.Key, error) {
	if coord.ValidateOrganization(text) == nil {
		keys, err := copies.Tenants(ctx, text)
		if err == nil && len(keys) == 0 {
			// A mistyped name must not look like work done.
			err = &coord.Error{Code: coord.CodeTenantUnknown, Detail: "the organization " + text + " has no copies"}
		}
		return keys, err
	}
	key, err := coord.ParseKey(text)
	return []coord.Key{key}, err
}

func verifyTenant(ctx context.Context, copies *copystore.Copies, key coord.Key, temp string, progress io.Writer) ([]verdict, error) {
	tree, err := copies.Tree(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	var verdicts []verdict
	for _, e := range tree.Epochs {
		for _, entry := range e.Copies {
			v := verdict{Key: key, Copy: entry.Ref, InLineage: entry.InLineage}
			m, err := copies.Verify(ctx, key, entry.Ref, temp, copystore.ExtractRequest{Verify: ledgerOf(key), Progress: showTransfer(progress)})
			var invalid *coord.RestoreInvalidError
			switch {
			case err == nil:
				v.OK, v.Events, v.Size = true, m.Events, m.Size
			case errors.As(err, &invalid):
				v.Problem = invalid.Skipped[0].Reason
			default:
				return verdicts, err
			}
			verdicts = append(verdicts, v)
		}
	}
	return verdicts, nil
}

func printVerdicts(w io.Writer, verdicts []verdict) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tCOPY\tLINEAGE\tEVENTS\tBYTES\tRESULT")
	for _, v := range verdicts {
		in, result := "yes", "ok"
		if !v.InLineage {
			in = "no"
		}
		if !v.OK {
			result = v.Problem
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\n", v.Key, v.Copy, in, v.Events, v.Size, result)
	}
	return t.Flush()
}

func judge(verdicts []verdict) error {
	bad := 0
	for _, v := range verdicts {
		if !v.OK {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d copies cannot be trusted", bad, len(verdicts))
	}
	return nil
}

func (c *copiesCommand) restoreCommand() *cobra.Command {
	var to string
	var epoch, seq uint64
	cmd := &cobra.Command{
		Use:   "restore ORG/TENANT --to FILE",
		Short: "Bring a copy to a file of its own, which any SQLite opens",
		Long: `Bring a copy to a file of its own, which any SQLite opens: the newest one of the
lineage that can be trusted, or the one that --epoch and --seq name. It is
verified first. No lease is needed, and the tenant is not affected.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := coord.ParseKey(args[0])
			if err != nil {
				return err
			}
			return c.run(cmd, func(ctx context.Context, copies *copystore.Copies) error {
				req := copystore.ExtractRequest{Path: to, Verify: ledgerOf(key), Progress: showTransfer(cmd.ErrOrStderr())}
				m, err := restoreTo(ctx, copies, key, copystore.Ref{Epoch: coord.Epoch(epoch), Seq: seq}, req, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				return c.print(cmd.OutOrStdout(), m, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s %s  %s  %d events  %d bytes  → %s\n", key, m.Ref(), stamp(m.Time), m.Events, m.Size, to)
					return err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "", "`FILE` to make; it must not exist")
	flags.Uint64Var(&epoch, "epoch", 0, "`EPOCH` of the copy to restore, with --seq")
	flags.Uint64Var(&seq, "seq", 0, "`SEQ` of the copy to restore, with --epoch")
	cmd.MarkFlagsRequiredTogether("epoch", "seq")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func restoreTo(ctx context.Context, copies *copystore.Copies, key coord.Key, ref copystore.Ref, req copystore.ExtractRequest, warn io.Writer) (copystore.Manifest, error) {
	if ref != (copystore.Ref{}) {
		return copies.Extract(ctx, key, ref, req)
	}
	m, skipped, err := copies.ExtractNewest(ctx, key, 0, req)
	for _, s := range skipped {
		fmt.Fprintf(warn, "passed over %s seq %d: %s\n", s.Epoch, s.Seq, s.Reason)
	}
	return m, err
}
