package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func newHostCheckCommand(c *hostConfig) *cobra.Command {
	command := &cobra.Command{
		Use:   "check",
		Short: "Look for damage in the store of a host that does not run",
		Long:  "Read every page and every record of ROOT/host.db, and change nothing. The exit\ncode is 1 when something is wrong.",
		Args:  arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			root, err := c.absolute()
			if err != nil {
				return err
			}
			report, err := store.CheckWith(root, store.Options{SecretsKey: c.secretsKey})
			if err != nil {
				return err
			}
			if err := printReport(command.OutOrStdout(), report); err != nil {
				return err
			}
			if len(report.Problems) > 0 {
				return ExitError{Code: exitFailed}
			}
			return nil
		},
	}
	c.bindSecretsKey(command)
	return command
}

func printReport(out io.Writer, report *store.Report) error {
	if _, err := fmt.Fprintf(out, "%s: schema %d\n", report.Path, report.Schema); err != nil {
		return err
	}
	if err := printRecords(out, report.Records); err != nil {
		return err
	}
	for _, problem := range report.Problems {
		if _, err := fmt.Fprintf(out, "PROBLEM %s\n", problem); err != nil {
			return err
		}
	}
	if len(report.Problems) == 0 {
		_, err := fmt.Fprintln(out, "no problem found")
		return err
	}
	return nil
}

func printRecords(out io.Writer, records map[string]int) error {
	for _, kind := range slices.Sorted(maps.Keys(records)) {
		if _, err := fmt.Fprintf(out, "  %-24s %d\n", kind, records[kind]); err != nil {
			return err
		}
	}
	return nil
}

func newHostRepairCommand(c *hostConfig) *cobra.Command {
	return &cobra.Command{
		Use:   "repair",
		Short: "Make a new store from the readable records of a damaged one",
		Long: `Replace ROOT/host.db by a store with every record that can still be read. The
damaged file is kept next to it, and so are the bytes of records that make no
sense. The host must not run.

The volume of a record that is LOST is not known to the host any more; the volume
itself is not touched. A record that is UNSURE may be of an earlier time:
inspect it with 'holdfast get' before anything else is done with it. A backup may be
the better choice: 'holdfast host backups' lists them, 'holdfast host restore' puts
one in place.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			root, err := c.absolute()
			if err != nil {
				return err
			}
			repaired, err := store.Repair(root, time.Now())
			if err != nil {
				return err
			}
			return printRepaired(command.OutOrStdout(), repaired)
		},
	}
}

func printRepaired(out io.Writer, repaired *store.Repaired) error {
	if _, err := fmt.Fprintf(out, "the damaged store is kept as %s; the new one has\n", repaired.Kept); err != nil {
		return err
	}
	if err := printRecords(out, repaired.Records); err != nil {
		return err
	}
	for _, lost := range repaired.Lost {
		if _, err := fmt.Fprintf(out, "LOST %s\n", lost); err != nil {
			return err
		}
	}
	for _, unsure := range repaired.Unsure {
		if _, err := fmt.Fprintf(out, "UNSURE %s\n", unsure); err != nil {
			return err
		}
	}
	if repaired.Unread != "" {
		_, err := fmt.Fprintf(out, "records that do not decode are in %s\n", repaired.Unread)
		return err
	}
	return nil
}
