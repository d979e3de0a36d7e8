package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/backend/local"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// remains describes the volumes of an earlier host in the pool of the local driver.
func (l localConfig) remains(root string) (string, error) {
	pool := l.pool
	if pool == "" {
		pool = filepath.Join(root, "pool")
	}
	count, err := local.Remains(pool)
	if err != nil || count == 0 {
		return "", err
	}
	return fmt.Sprintf("%d volumes and snapshots in the pool %s", count, pool), nil
}

func (c *hostConfig) bindSecretsKey(command *cobra.Command) {
	command.Flags().StringVar(&c.secretsKey, "secrets-key", "",
		"`FILE` with the key of the Secrets, if the host was given one (default: ROOT/secrets.key)")
}

func newHostBackupsCommand(c *hostConfig) *cobra.Command {
	command := &cobra.Command{
		Use:   "backups",
		Short: "List the backups of a host's store",
		Long: `List the backups of ROOT/host.db, the newest first. The host makes one when it
starts, when it ends, and every hour in which something changed.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			root, err := c.absolute()
			if err != nil {
				return err
			}
			generations, err := store.Generations(root, store.Options{SecretsKey: c.secretsKey})
			if err != nil {
				return err
			}
			return printGenerations(command.OutOrStdout(), generations)
		},
	}
	c.bindSecretsKey(command)
	return command
}

func printGenerations(out io.Writer, generations []store.Generation) error {
	if len(generations) == 0 {
		_, err := fmt.Fprintln(out, "no backups found")
		return err
	}
	rows := [][]string{{"NAME", "TAKEN", "VERSION", "CLAIMS", "PODS", "STATE"}}
	for _, g := range generations {
		state := "sound"
		switch {
		case !g.Sound():
			state = "damaged: " + g.Problems[0].String()
		case len(g.Problems) > 0:
			state = g.Problems[0].String()
		case g.Empty():
			state = "empty"
		}
		rows = append(rows, []string{
			g.Name, g.Taken.Format(time.RFC3339), strconv.FormatUint(g.Version, 10),
			strconv.Itoa(g.Records["persistentvolumeclaims"]), strconv.Itoa(g.Records["pods"]), state,
		})
	}
	return aligned(out, "", rows)
}

func newHostRestoreCommand(c *hostConfig) *cobra.Command {
	command := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Replace a host's store by a backup",
		Long: `Replace ROOT/host.db by a copy of BACKUP, a name that 'holdfast host backups' lists
or a path. The replaced file is kept under another name. The host must not run.

What happened after the backup is not known then: a pod that was made since is
ended, and a volume that was made since stays in its storage without a claim.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, names []string) error {
			return c.replaceStore(command, func(root string) (*store.Replaced, error) {
				return store.Restore(root, names[0], store.Options{SecretsKey: c.secretsKey}, time.Now())
			})
		},
	}
	c.bindSecretsKey(command)
	return command
}

func newHostInitCommand(c *hostConfig) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Make an empty store although an earlier host's volumes exist",
		Long: `Replace ROOT/host.db, if there is one, by an empty store; the replaced file is kept
under another name. A host makes its store when it starts: this command is for one that
refuses to, because an earlier host left pods, mounts or volumes.

The next host knows none of them: it ends these pods, leaves mounts alone, and
gives a claim that is applied again a new volume. The volumes stay in their
storage.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			return c.replaceStore(command, func(root string) (*store.Replaced, error) {
				return store.Reset(root, store.Options{}, time.Now())
			})
		},
	}
}

// stopped returns the root directory of a host that does not run. One whose store
// was removed under it has no lock that could be seen.
func (c *hostConfig) stopped(command *cobra.Command) (string, error) {
	root, err := c.absolute()
	if err != nil {
		return "", err
	}
	client := api.DialRoot(root)
	defer client.Close()
	if _, err := client.Version(command.Context()); err == nil {
		return "", errors.New("a host runs in " + root + ": stop it first")
	}
	return root, nil
}

// replaceStore replaces the store of a host that does not run.
func (c *hostConfig) replaceStore(command *cobra.Command, replace func(root string) (*store.Replaced, error)) error {
	root, err := c.stopped(command)
	if err != nil {
		return err
	}
	replaced, err := replace(root)
	if err != nil {
		return err
	}
	return printReplaced(command.OutOrStdout(), replaced)
}

func printReplaced(out io.Writer, replaced *store.Replaced) error {
	if replaced.Kept != "" {
		if _, err := fmt.Fprintf(out, "the store as it was is kept as %s\n", replaced.Kept); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, "the store has now"); err != nil {
		return err
	}
	if len(replaced.Records) == 0 {
		_, err := fmt.Fprintln(out, "  no record")
		return err
	}
	if err := printRecords(out, replaced.Records); err != nil {
		return err
	}
	for _, problem := range replaced.Problems {
		if _, err := fmt.Fprintf(out, "PROBLEM %s\n", problem); err != nil {
			return err
		}
	}
	return nil
}
