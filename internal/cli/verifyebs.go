package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	ebsverify "github.com/holdfast-csi/holdfast/internal/backend/ebs/verify"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

const verifyEBSHelp = `Test what the ebs backend relies on, on EC2 itself. Credentials and region are those of
AWS's tools.

Without --zone it only describes, and tries to delete a volume and a snapshot whose IDs
EC2 has not assigned. With --zone it makes up to six gp3 volumes of 1 to 3 GiB and two snapshots for
some minutes, which costs less than 0.01 USD; all have the tag holdfast.dev/verify. With
--instance-id it also attaches one volume to that instance. It removes all of them at the
end, also after Ctrl-C. After a kill, 'holdfast verify ebs --clean-up' removes those of all
runs that are older than an hour, and with --run those of one run.

The caller needs the rights of the policy in docs/guides/verify-on-aws.md.`

// instanceSelf as --instance-id is the instance that this machine is.
const instanceSelf = "self"

type verifyEBSConfig struct {
	verification
	endpoint, region, zone string
	instanceID, sysRoot    string
	only                   string // the run to clean up, "" for all old ones
}

func newVerifyEBSCommand(version string) *cobra.Command {
	c := verifyEBSConfig{verification: verification{subject: "ebs", version: version, facts: map[string]string{}}}
	command := &cobra.Command{
		Use:   "ebs",
		Short: "Test what the ebs backend relies on, on EC2",
		Long:  verifyEBSHelp,
		Example: "  holdfast verify ebs --list\n  holdfast verify ebs --aws-region us-west-2 --zone us-west-2a\n" +
			"  sudo holdfast verify ebs --instance-id self --yes",
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error { return c.verify(command) },
	}
	flags := command.Flags()
	c.bind(flags)
	flags.StringVar(&c.endpoint, "ec2-endpoint", "", "`URL` of EC2 (default $AWS_EC2_ENDPOINT, or the region's own)")
	flags.StringVar(&c.region, "aws-region", "", "`REGION` (default $AWS_REGION, or the instance's)")
	flags.StringVar(&c.zone, "zone", "", "availability `ZONE` where volumes may be made (default: none, or that of --instance-id=self)")
	flags.StringVar(&c.instanceID, "instance-id", "", "`ID` of a running instance of the zone to attach a volume to; self is the one that this machine is")
	flags.StringVar(&c.only, "run", "", "with --clean-up: only the `RUN` of this name, also if it is younger than an hour")
	flags.StringVar(&c.sysRoot, "sys-root", "/sys", "`DIRECTORY` of sysfs, where the disks of --instance-id=self are found")
	return command
}

func (c *verifyEBSConfig) verify(command *cobra.Command) error {
	options := ebsverify.Options{Run: runName(), Ledger: &c.ledger}
	if c.list {
		return c.printList(command.OutOrStdout(), ebsverify.New(options).Checks())
	}
	if err := c.locate(command.Context(), &options); err != nil {
		return err
	}
	client, err := cloud.New(command.Context(), cloud.Options{
		Endpoint: c.endpoint, Region: c.region, UserAgent: "holdfast-verify/" + c.version, Lag: time.Nanosecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fmt.Errorf("EC2: %w", err)
	}
	defer func() { _ = client.Close() }()
	options.Cloud = client
	session := ebsverify.New(options)
	if c.clean {
		return c.removeEarlier(command, session)
	}
	if options.Zone != "" {
		effect := "makes up to six small EBS volumes and two snapshots in " + options.Zone + ", and removes them at the end"
		if err := c.agreed(command, effect); err != nil {
			return err
		}
	}
	c.findLost = session.FindLost
	c.facts["region"], c.facts["zone"], c.facts["run"] = client.Region(), options.Zone, options.Run
	return c.run(command, session.Checks())
}

// locate finds the zone and the instance that the checks use.
func (c *verifyEBSConfig) locate(ctx context.Context, options *ebsverify.Options) error {
	options.Zone, options.InstanceID = c.zone, c.instanceID
	switch {
	case c.instanceID == "" || c.clean:
		return nil
	case c.instanceID != instanceSelf && c.zone == "":
		return usageErrorf("--instance-id %s: name its zone with --zone", c.instanceID)
	case c.instanceID != instanceSelf:
		return nil
	}
	source := metadata.NewIMDS("")
	self, err := source.Instance(ctx)
	if err != nil {
		return fmt.Errorf("--instance-id=self: %w", err)
	}
	if c.zone != "" && c.zone != self.Zone {
		return usageErrorf("--zone %s: this instance is in %s", c.zone, self.Zone)
	}
	options.Zone, options.InstanceID, options.Metadata = self.Zone, self.ID, source
	options.Machine = sysfsDisks{c.sysRoot}
	c.facts["instance type"] = self.Type
	return nil
}

// removeEarlier removes what the tags show of earlier runs, once the caller agrees.
func (c *verifyEBSConfig) removeEarlier(command *cobra.Command, session *ebsverify.Session) error {
	out := command.OutOrStdout()
	c.ledger.Announce = func(r verify.Resource) { _, _ = fmt.Fprintf(out, "found   %s %s\n", r.Kind, r.ID) }
	left := map[string]bool{}
	err := session.Find(command.Context(), c.only, func(run string) bool {
		if isOld(run, time.Now()) {
			return true
		}
		if !left[run] {
			_, _ = fmt.Fprintf(out, "left    what the run %s made, since it may be running; --run %s includes it\n", run, run)
		}
		left[run] = true
		return false
	})
	if err != nil {
		return err
	}
	if len(c.ledger.Resources()) == 0 {
		_, err := fmt.Fprintln(out, "nothing of earlier runs is to be removed")
		return err
	}
	if err := c.agreed(command, "detaches and deletes what was found"); err != nil {
		return err
	}
	err = c.cleanUp(command.Context())
	for _, r := range c.ledger.Resources() {
		if r.Removed {
			_, _ = fmt.Fprintf(out, "removed %s %s\n", r.Kind, r.ID)
		}
	}
	return err
}

// sysfsDisks are the disks of this machine.
type sysfsDisks struct{ root string }

// Disk implements ebsverify.Machine.
func (d sysfsDisks) Disk(_ context.Context, volumeID string) (serial, model string, err error) {
	return nodeside.DiskOf(d.root, volumeID)
}
