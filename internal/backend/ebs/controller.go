// Package ebs is the controller half of the backend for Amazon EBS volumes: it creates,
// attaches and changes them through EC2. It stores no state: after a crash it reads the
// state from EC2.
//
// Names, tags, parameters and topology keys are those of the AWS EBS CSI driver, so that
// each driver can take over the volumes of the other.
package ebs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/attachment"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/change"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// DriverName is the CSI plugin name, also that of the AWS EBS CSI driver.
const DriverName = "ebs.csi.aws.com"

// gib is the unit of EBS sizes.
const gib = int64(1) << 30

// defaultSize, in GiB, is the size of a volume whose creation names none. The AWS EBS CSI
// driver has the same.
const defaultSize = 100

// Options configure a Controller.
type Options struct {
	Cloud *cloud.Client
	// ChangeWindow is how long a change of a volume waits for others, which are then
	// made together with it; 0 means 2 s.
	ChangeWindow time.Duration
	// StuckAfter is how long an attachment may make no progress until another device
	// name is tried; 0 means 90 s.
	StuckAfter time.Duration
	// NodeLocal serves node-local volumes; see attachNodeLocal.
	NodeLocal bool
	// Reading is how the parameters of classes are read.
	Reading params.Reading
	// Tags make the tags of the flags and of the driver; nil means those of the driver.
	Tags       *tags.Rules
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Controller is a backend.Controller for EBS volumes.
type Controller struct {
	cloud   *cloud.Client
	options Options
	log     *slog.Logger
	tags    *tags.Rules

	lag           time.Duration // of EC2's describes
	backoffs      backoffs
	spentTokens   concurrency.Expiring[string, int] // how many tokens of a name are known to be spent
	requested     requestedVolumes
	nodeLocal     nodeLocals
	snapshotNames snapshotNames
	finished      concurrency.Expiring[string, bool] // snapshots whose lock and fast restore are set
	volumes       listings[cloud.Volume]
	snapshots     listings[cloud.Snapshot]

	attachments *attachment.Machine
	changes     *change.Changer
}

// New makes a Controller. It makes no EC2 call.
func New(o Options) (*Controller, error) {
	if o.Cloud == nil {
		return nil, errors.New("ebs: Options.Cloud is not set")
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	rules := o.Tags
	if rules == nil {
		var err error
		if rules, err = tags.New(tags.Options{Logger: log}); err != nil {
			return nil, err
		}
	}
	c := &Controller{cloud: o.Cloud, options: o, log: log, tags: rules, lag: o.Cloud.Lag()}
	c.attachments, c.changes = c.newAttachments(), c.newChanges()
	if o.Registerer == nil {
		return c, nil
	}
	if err := o.Registerer.Register(c.attachments.Pending()); err != nil {
		c.Close()
		return nil, fmt.Errorf("ebs: metrics: %w", err)
	}
	return c, nil
}

// Close ends the running calls.
func (c *Controller) Close() {
	if c.attachments != nil {
		if c.options.Registerer != nil {
			c.options.Registerer.Unregister(c.attachments.Pending())
		}
		c.attachments.Close()
		c.changes.Close()
	}
}

// Offline is a Controller for a process that has the node half only. Traits is the only
// method that it supports.
func Offline() *Controller { return &Controller{log: slog.New(slog.DiscardHandler)} }

// Probe reports whether EC2 answers, by the last calls; it makes none itself.
func (c *Controller) Probe(context.Context) error { return c.cloud.Health() }

// Traits of EBS volumes. The sizes are those of the default type; see Sizes.
func (c *Controller) Traits() backend.Traits {
	return backend.Traits{
		DriverName:   DriverName,
		TopologyKeys: []string{zoneKey, zoneKeyOwn},
		MinimumSize:  gib, MaximumSize: 65536 * gib, DefaultSize: defaultSize * gib, AllocationUnit: gib,
		AccessModes: []backend.AccessMode{
			backend.SingleNodeWriter, backend.SingleNodeReaderOnly,
			backend.SingleNodeSingleWriter, backend.SingleNodeMultiWriter,
			backend.MultiNodeReaderOnly, backend.MultiNodeMultiWriter,
		},
		Filesystems: filesystems(), WindowsFilesystems: []string{"ntfs"},
		Block: true, Clone: true, OnlineExpansion: true,
		Parameters: params.Names(), MutableParameters: params.MutableNames(),
		CreateFindsName: true, LagsBehind: true, MergesChanges: true, JoinsAttachment: true, ConcurrentSnapshots: true,
	}
}

// filesystems that may be made on a volume, the default first.
func filesystems() []string { return []string{"ext4", "ext3", "xfs", "btrfs"} }
