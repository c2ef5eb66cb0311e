package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaseholddb/leasehold/coord"
)

func newEndLeaseCommand(environ []string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "end-lease ORGANIZATION/TENANT...",
		Short: "End leases that hang on nothing and so would never end",
		Long: `End leases that hang on nothing and so would never end.

"replica leases" shows such a lease as stuck for ever. The command watches it for its
TTL, so that a holder's fence has passed if there is a holder after all, and ends it
unless it was written meanwhile. The next grant has the next epoch. A lease that ends
by itself is refused: stop its owner, and wait for the TTL.`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return operatorCommand(environ, etcdFlags(), cmd, func(cmd *cobra.Command, cfg *config, args []string) error {
		if output != "table" && output != "json" {
			return fmt.Errorf("--output must be table or json, not %q", output)
		}
		keys, err := parseKeys(args)
		if err != nil {
			return err
		}
		store, err := reachLeases(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		defer store.Close()
		encoder := json.NewEncoder(cmd.OutOrStdout())
		for _, key := range keys {
			fmt.Fprintf(cmd.ErrOrStderr(), "watching %s for its TTL\n", key)
			record, err := store.EndStuck(cmd.Context(), key)
			if err != nil {
				return err
			}
			if output == "json" {
				err = encoder.Encode(newLeaseLine(record, ""))
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  ended epoch %d of %s\n", key, record.Epoch, record.Owner)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func parseKeys(args []string) ([]coord.Key, error) {
	keys := make([]coord.Key, 0, len(args))
	for _, arg := range args {
		key, err := coord.ParseKey(arg)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}
