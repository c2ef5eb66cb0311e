package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/ledger"
)

// A copiesCommand is what the commands below "copies" share.
type copiesCommand struct {
	environ  []string
	place    string
	stateDir string
	file     string
	output   string
}

func newCopiesCommand(environ []string) *cobra.Command {
	c := &copiesCommand{environ: environ}
	cmd := &cobra.Command{
		Use:   "copies",
		Short: "Look at, verify and restore durable copies, without a lease",
		Long: `Look at, verify and restore durable copies, without a lease.

These commands ask the copy store alone, not etcd. Of a tenant that was forgotten
they show what has not been swept yet; no replica ever restores it.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.place, "copies", "", "`DIR` or s3://bucket/prefix?… of the copies (default <state-dir>/"+copiesBase+")")
	flags.StringVar(&c.stateDir, "state-dir", defaultStateDir, "`DIR` of a replica whose copies are meant")
	flags.StringVar(&c.file, configFlag, "", "read settings from this YAML `FILE`, as serving does")
	flags.StringVarP(&c.output, "output", "o", "table", "table or json")
	cmd.AddCommand(c.listCommand(), c.verifyCommand(), c.restoreCommand())
	return cmd
}

// run opens the copies for f. Settings are read as serving reads them.
func (c *copiesCommand) run(cmd *cobra.Command, f func(ctx context.Context, copies *copystore.Copies) error) (err error) {
	if c.output != "table" && c.output != "json" {
		return fmt.Errorf("--output must be table or json, not %q", c.output)
	}
	cfg, all, file := defaultConfig(), pflag.NewFlagSet("", pflag.ContinueOnError), ""
	cfg.addFlags(all)
	all.StringVar(&file, configFlag, c.file, "")
	for _, name := range []string{"copies", "state-dir"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			if err := all.Set(name, flag.Value.String()); err != nil {
				return err
			}
		}
	}
	if err := cfg.load(all, c.file, c.environ); err != nil {
		return err
	}
	place := cfg.copiesPlace()
	if err := requireDirectory(place); err != nil {
		return err
	}
	store, closeStore, err := openCopyStore(cmd.Context(), place, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	copies, err := copystore.New(store, copystore.Options{})
	if err != nil {
		return err
	}
	return f(cmd.Context(), copies)
}

func (c *copiesCommand) print(w io.Writer, v any, table func(w io.Writer) error) error {
	if c.output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	return table(w)
}

func (c *copiesCommand) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list ORG/TENANT",
		Short: "Show a tenant's copies as the tree of its lineage",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := coord.ParseKey(args[0])
			if err != nil {
				return err
			}
			return c.run(cmd, func(ctx context.Context, copies *copystore.Copies) error {
				tree, err := copies.Tree(ctx, key, 0)
				if err != nil {
					return err
				}
				return c.print(cmd.OutOrStdout(), tree, func(w io.Writer) error { return printTree(w, tree) })
			})
		},
	}
}

// printTree shows each epoch with what it started from, and its copies below it.
func printTree(w io.Writer, tree copystore.Tree) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", tree.Key)
	for i, e := range tree.Epochs {
		branch, stem := "├─ ", "│  "
		if i == len(tree.Epochs)-1 {
			branch, stem = "└─ ", "   "
		}
		fmt.Fprintf(&b, "%s%s  %s%s\n", branch, e.Epoch, describeOrigin(e), outside(e.InLineage))
		for j, copy := range e.Copies {
			leaf := "├─ "
			if j == len(e.Copies)-1 && len(e.Orphans) == 0 {
				leaf = "└─ "
			}
			fmt.Fprintf(&b, "%s%s%s  %s%s\n", stem, leaf, copy.Ref, describeCopy(copy), outside(copy.InLineage))
		}
		for j, name := range e.Orphans {
			leaf := "├─ "
			if j == len(e.Orphans)-1 {
				leaf = "└─ "
			}
			fmt.Fprintf(&b, "%s%s%s  belongs to no copy\n", stem, leaf, strings.TrimPrefix(name, tree.Key.String()+"/"))
		}
	}
	if len(tree.Epochs) == 0 {
		b.WriteString("└─ no copies\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func describeOrigin(e copystore.EpochNode) string {
	switch {
	case e.Origin == nil:
		return e.Problem
	case e.Origin.From == nil:
		return fmt.Sprintf("%s, started empty, %s", e.Origin.Owner, stamp(e.Origin.Time))
	}
	return fmt.Sprintf("%s, started from %s, %s", e.Origin.Owner, e.Origin.From, stamp(e.Origin.Time))
}

func describeCopy(c copystore.CopyNode) string {
	if c.Manifest == nil {
		return c.Problem
	}
	text := fmt.Sprintf("%s  %d events  %d bytes", stamp(c.Manifest.Time), c.Manifest.Events, c.Manifest.Size)
	if c.Problem != "" {
		text += "  " + c.Problem
	}
	return text
}

func stamp(t copystore.Timestamp) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func outside(in bool) string {
	if in {
		return ""
	}
	return "  (outside the lineage: never restored)"
}

// ledgerOf checks files as a restore does.
func ledgerOf(key coord.Key) func(ctx context.Context, path string) (int64, error) {
	return func(ctx context.Context, path string) (int64, error) {
		info, err := ledger.Verify(ctx, path, key)
		return info.Events, err
	}
}

// showTransfer tells people how far a large download has come.
func showTransfer(w io.Writer) func(copystore.Transfer) {
	return func(t copystore.Transfer) {
		fmt.Fprintf(w, "%s %s: %d of %d MiB\n", t.Key, t.Copy, t.Done>>20, t.Total>>20)
	}
}
