package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

func newRaiseEpochCommand(environ []string) *cobra.Command {
	var output string
	var above uint64
	var confirm bool
	cmd := &cobra.Command{
		Use:   "raise-epoch ORGANIZATION[/TENANT]...",
		Short: "After etcd was restored or replaced, put tenants' epochs above all of their copies",
		Long: `After etcd was restored or replaced, put tenants' epochs above all of their copies.

An organization stands for each of its tenants that has copies. It refuses a tenant
that somebody holds. Restart the replicas afterwards: they
refuse to work since they noticed. If etcd is a new cluster, made from a backup of
the old one, --confirm-cluster says that it is the right one, for all tenants: do
that when every tenant's epoch has been raised.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !confirm {
				return fmt.Errorf("name a tenant as ORGANIZATION/TENANT, or an organization")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().Uint64Var(&above, "above", 0, "put it above `EPOCH` too, such as one that a log tells of")
	cmd.Flags().BoolVar(&confirm, "confirm-cluster", false, "declare that this etcd cluster is the right one")
	return operatorCommand(environ, append(etcdFlags(), "copies", "state-dir"), cmd, func(cmd *cobra.Command, cfg *config, args []string) error {
		if output != "table" && output != "json" {
			return fmt.Errorf("--output must be table or json, not %q", output)
		}
		raised, err := raiseEpochs(cmd.Context(), cfg, args, coord.Epoch(above), confirm)
		if err != nil {
			return err
		}
		if output == "json" {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(raised)
		}
		for _, r := range raised {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  copies up to epoch %d, next grant %d\n", r.Tenant, r.NewestCopy, r.Next); err != nil {
				return err
			}
		}
		return nil
	})
}

type raisedLine struct {
	Tenant     string      `json:"tenant"`      // the lease key
	NewestCopy coord.Epoch `json:"newest_copy"` // 0 if there is no copy
	Next       coord.Epoch `json:"next_epoch"`
}

func raiseEpochs(ctx context.Context, cfg *config, args []string, above coord.Epoch, confirm bool) ([]raisedLine, error) {
	if err := cfg.needCopies(); err != nil {
		return nil, err
	}
	for _, arg := range args {
		if _, err := coord.ParseKey(arg); err != nil && coord.ValidateOrganization(arg) != nil {
			return nil, err
		}
	}
	if err := requireStore(cfg.copiesPlace()); err != nil {
		return nil, err
	}
	objects, closeCopies, err := openCopyStore(ctx, cfg.copiesPlace(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer closeCopies()
	copies, err := copystore.New(objects, copystore.Options{})
	if err != nil {
		return nil, err
	}
	id, err := copies.KnownIdentity(ctx)
	if err != nil {
		return nil, fmt.Errorf("copies: %s is not the store of any replica: %w", cfg.copiesPlace(), err)
	}
	leases, err := reachLeases(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer leases.Close()
	if err := leases.BindCopies(ctx, id); err != nil {
		return nil, err
	}
	var keys []coord.Key
	for _, arg := range args {
		named, err := keysOf(ctx, copies, arg)
		if err != nil {
			return nil, err
		}
		keys = append(keys, named...)
	}
	raised := make([]raisedLine, 0, len(keys))
	for _, key := range keys {
		newest, err := copies.NewestEpoch(ctx, key)
		if err != nil {
			return nil, err
		}
		latest, err := leases.RaiseEpoch(ctx, key, max(newest, above))
		if err != nil {
			return nil, err
		}
		// Last: the mark keeps the tenant closed until its epoch cannot be granted again.
		if err := copies.ClearRollback(ctx, key); err != nil {
			return nil, err
		}
		raised = append(raised, raisedLine{Tenant: key.String(), NewestCopy: newest, Next: latest + 1})
	}
	if confirm {
		return raised, leases.ConfirmCluster(ctx)
	}
	return raised, nil
}
