package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/leaseholddb/leasehold/coord"
)

// newCommand returns the command line. environ is what settings are read from
// besides flags and file, as os.Environ returns it.
func newCommand(environ []string) *cobra.Command {
	cfg := defaultConfig()
	file := ""
	root := &cobra.Command{
		Use:           "replica",
		Short:         "Serve tenants' SQLite ledgers, each with exactly one writer",
		Long:          longHelp,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd.Flags(), file, environ); err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cfg.addFlags(root.Flags())
	root.Flags().StringVar(&file, configFlag, "", "read settings from this YAML `FILE`: flag names as keys")
	root.AddCommand(newVersionCommand(), newTenantIDCommand(), newTokenCommand(), newLeasesCommand(environ), newCopiesCommand(environ), newRaiseEpochCommand(environ), newEndLeaseCommand(environ), newSimCommand())
	return root
}

const longHelp = `Serve tenants' SQLite ledgers, each with exactly one writer.

With nothing configured the replica runs an etcd of its own, keeps durable copies
in a directory and listens on loopback; beyond that it serves only with TLS and
tokens (--tls-cert, --tls-key, --tokens, --peer-token-file). Every flag is also a variable LEASEHOLD_…
(--lease-ttl is LEASEHOLD_LEASE_TTL) and a key of the file that --config names
(lease-ttl). A flag wins over a variable, a variable over the file. An empty
variable counts as not set.`

// version is what the module was built as: a tag, or a pseudo-version with the
// commit in it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "replica %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func newTenantIDCommand() *cobra.Command {
	var keyFile, issuer, subject, output string
	cmd := &cobra.Command{
		Use:   "tenant-id",
		Short: "Derive an end user's tenant id and prompt-cache partition label",
		Long: `Derive an end user's tenant id and prompt-cache partition label.

The key file holds the organization's key, at least 32 bytes. Every byte of it
counts, a newline at its end included. Issuer and subject count byte for byte.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := deriveIDs(keyFile, issuer, subject)
			if err != nil {
				return err
			}
			return ids.print(cmd.OutOrStdout(), output)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&keyFile, "key-file", "", "`FILE` with the organization's key")
	flags.StringVar(&issuer, "issuer", "", "who identified the user, such as https://idp.example/acme")
	flags.StringVar(&subject, "subject", "", "the user's name at the issuer")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	for _, name := range []string{"key-file", "issuer", "subject"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

type derivedIDs struct {
	Tenant    string `json:"tenant"`
	Partition string `json:"partition"`
}

func deriveIDs(keyFile, issuer, subject string) (ids derivedIDs, err error) {
	secret, err := os.ReadFile(keyFile)
	if err != nil {
		return ids, fmt.Errorf("key file: %w", err)
	}
	key, err := coord.NewOrganizationKey(secret)
	if err != nil {
		return ids, err
	}
	if ids.Tenant, err = key.TenantID(issuer, subject); err != nil {
		return ids, err
	}
	ids.Partition, err = key.PartitionLabel(ids.Tenant)
	return ids, err
}

func (ids derivedIDs) print(w io.Writer, format string) error {
	switch format {
	case "json":
		return json.NewEncoder(w).Encode(ids)
	case "table":
		_, err := fmt.Fprintf(w, "tenant     %s\npartition  %s\n", ids.Tenant, ids.Partition)
		return err
	default:
		return fmt.Errorf("--output must be table or json, not %q", format)
	}
}
