package cli

import (
	"github.com/spf13/cobra"

	winverify "github.com/holdfast-csi/holdfast/internal/csiproxy/verify"
)

const verifyWindowsHelp = `Test what csi-proxy and the Windows node plugin rely on, on Windows itself, as an
administrator.

Without flags it only reads disks and volumes. With --dir it makes directories and links
in that directory, which must be empty and on NTFS, and removes them. With --disk and
--serial it also brings that disk online, partitions, formats and mounts it; the disk must
be blank. Afterwards the disk is offline and keeps an empty NTFS partition; the report has the command that
clears it.`

type verifyWindowsConfig struct {
	verification
	dir, serial string
	disk        uint32
}

func newVerifyWindowsCommand(version string) *cobra.Command {
	c := verifyWindowsConfig{verification: verification{subject: "windows", version: version, facts: map[string]string{}}}
	command := &cobra.Command{
		Use:   "windows",
		Short: "Test what csi-proxy relies on, on a Windows node",
		Long:  verifyWindowsHelp,
		Example: "  holdfast verify windows --list\n  holdfast verify windows --dir C:\\verify\n" +
			"  holdfast verify windows --dir C:\\verify --disk 2 --serial vol0123456789abcdef0",
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error { return c.verify(command) },
	}
	flags := command.Flags()
	c.bind(flags)
	flags.StringVar(&c.dir, "dir", "", "an existing, empty `DIRECTORY` on an NTFS volume, for directories and links")
	flags.Uint32Var(&c.disk, "disk", 0, "`NUMBER` of a blank disk that may be formatted (Get-Disk shows it)")
	flags.StringVar(&c.serial, "serial", "", "serial number of that disk; the disk is touched only if it has this one")
	return command
}

func (c *verifyWindowsConfig) verify(command *cobra.Command) error {
	switch flags := command.Flags(); {
	case c.list:
		return c.printList(command.OutOrStdout(), winverify.New(winverify.Options{}).Checks())
	case c.clean:
		return usageErrorf("--clean-up: a run of this command leaves nothing that a later one could find; it names what stays")
	case flags.Changed("disk") != (c.serial != ""):
		return usageErrorf("--disk and --serial go together: numbers of disks change, so the serial number must agree")
	case c.serial != "" && c.dir == "":
		return usageErrorf("--disk: name a directory for its mount point with --dir")
	}
	options := winverify.Options{Dir: c.dir, Disk: c.disk, Serial: c.serial, Ledger: &c.ledger}
	done, err := openMachine(&options)
	if err != nil {
		return err
	}
	defer done()
	if c.serial != "" {
		if err := c.agreed(command, "makes a partition with NTFS on disk "+command.Flag("disk").Value.String()+", which stays"); err != nil {
			return err
		}
	}
	session := winverify.New(options)
	if err := session.CheckDir(); err != nil {
		return usageErrorf("--dir: %w", err)
	}
	return c.run(command, session.Checks())
}
