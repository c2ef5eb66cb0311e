package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
)

func newTokenCommand() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "new-token ROLE NAME [ORG/TENANT...]",
		Short: "Make a bearer token and enter it among the tokens of a replica",
		Long: `Make a bearer token, print it, and enter what it gives into the file of --tokens.

The role is operator, peer, or tenant; a tenant's token reaches the tenants that are
named, and no other. The file gets the token's SHA-256 and never the token, which is
printed this once. Replicas read the file again by themselves, within seconds. To
withdraw a token, delete its line.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			grant, err := access.NewGrant(access.Role(args[0]), args[1], args[2:])
			if err != nil {
				return err
			}
			token := access.NewToken()
			if err := appendLine(file, grant.Entry(token)); err != nil {
				return fmt.Errorf("tokens: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	cmd.Flags().StringVar(&file, "tokens", "", "`FILE` to enter the token into; made if it is not there")
	if err := cmd.MarkFlagRequired("tokens"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// appendLine writes one whole line at the end of a file that only its owner uses.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
