package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// ebsConfig are the flags of the backend ebs.
type ebsConfig struct {
	endpoint, region   string
	sources            []string
	instanceType, zone string
	volumes, reserved  int64 // -1: derived
	tags               tags.Options
	firstPoll, lag     time.Duration
	window             time.Duration
	stuck              time.Duration
	legacyXFS          bool
	sysRoot, devRoot   string
	nvmeModel          string
	deviceWait         time.Duration
	mountPrefix        string // "": by the kubelet's directory
	sdkLog             bool
	strict             bool
	nodeLocal          bool
	labelNodes         bool
	userAgent          string
}

// bind declares the flags. Those that the AWS EBS CSI driver has keep its names.
func (e *ebsConfig) bind(flags *pflag.FlagSet) {
	flags.StringVar(&e.endpoint, "ec2-endpoint", "", "`URL` of EC2 (default $AWS_EC2_ENDPOINT, or the region's own)")
	flags.StringVar(&e.region, "aws-region", "", "`REGION` (default $AWS_REGION, or the instance's)")
	flags.StringSliceVar(&e.sources, "metadata-sources", []string{sourceIMDS, sourceKubernetes},
		"where a node asks which EC2 instance it is, in this order")
	flags.StringVar(&e.instanceType, "instance-type", "", "`TYPE` of this EC2 instance (default: by --metadata-sources)")
	flags.StringVar(&e.zone, "zone", "", "availability `ZONE` of this EC2 instance (default: by --metadata-sources)")
	flags.Int64Var(&e.volumes, "volume-attach-limit", -1, "volumes that a node takes (default: by its instance type)")
	flags.Int64Var(&e.reserved, "reserved-volume-attachments", -1, "attachments of a node that are not for volumes of this driver (default: counted)")
	flags.Var((*tagPairs)(&e.tags.Extra), "extra-tags", "tags for every volume and snapshot, `KEY=VALUE,…`")
	flags.Var((*tagPairs)(&e.tags.ExtraVolume), "extra-volume-tags", "tags for every volume, `KEY=VALUE,…`; prefer --extra-tags")
	flags.StringVar(&e.tags.ClusterID, "k8s-tag-cluster-id", "", "`ID` of the cluster, for tags that mark its volumes and snapshots")
	flags.BoolVar(&e.tags.WarnOnInvalid, "warn-on-invalid-tag", false, "leave a tag out that EC2 would refuse, with a warning, instead of failing")
	flags.BoolVar(&e.strict, "strict-parameters", false,
		"refuse values of classes that the AWS EBS CSI driver changes silently, such as too many IOPS")
	flags.BoolVar(&e.nodeLocal, "enable-node-local-volumes", false,
		"serve PersistentVolumes with a handle local-ebs://dev/NAME: on each node the volume that is attached under that device name")
	flags.BoolVar(&e.labelNodes, "label-nodes", false,
		"with --kubernetes: label each Node with the numbers of its interfaces and volumes, for the source metadata-labeler")
	flags.DurationVar(&e.window, "modify-volume-window", 2*time.Second, "how long a change of a volume waits for others that can be made with it")
	flags.DurationVar(&e.stuck, "attach-stuck-after", 90*time.Second, "when an attachment that makes no progress is given up and tried under another device name")
	flags.BoolVar(&e.sdkLog, "aws-sdk-debug-log", false, "log each request to EC2 and its answer, without credentials")
	flags.StringVar(&e.userAgent, "user-agent-extra", "", "`TEXT` to append to the user agent of requests to EC2")
	flags.DurationVar(&e.firstPoll, "ec2-first-look", 0, "how long after its start a transition is polled first (default: EC2's usual times)")
	flags.DurationVar(&e.lag, "ec2-lag", 10*time.Second, "how long EC2's descriptions may lag behind its answers; shorter for an emulator only")
	flags.BoolVar(&e.legacyXFS, "legacy-xfs", false, "make xfs that Linux 5.4 and older can mount")
	flags.StringVar(&e.sysRoot, "sys-root", "/sys", "`DIRECTORY` of sysfs, where disks are found")
	flags.StringVar(&e.devRoot, "dev-root", "/dev", "`DIRECTORY` of device nodes")
	flags.StringVar(&e.nvmeModel, "nvme-model", nodeside.AmazonModel, "NVMe `MODEL` of a disk that can be an EBS volume; any takes every model")
	flags.DurationVar(&e.deviceWait, "device-wait", 30*time.Second, "how long to wait for the device of an attached volume")
	flags.StringVar(&e.mountPrefix, "csi-mount-point-prefix", "", "`PREFIX` of mount points that mark a volume as this driver's, for its NVMe statistics (default: where the kubelet has this driver stage volumes)")
}

func (e *ebsConfig) check() error {
	switch {
	case e.window <= 0:
		return usageErrorf("--modify-volume-window: %v is not above zero", e.window)
	case e.lag <= 0:
		return usageErrorf("--ec2-lag: %v is not above zero", e.lag)
	case e.stuck <= 0:
		return usageErrorf("--attach-stuck-after: %v is not above zero", e.stuck)
	case e.volumes >= 0 && e.reserved >= 0:
		return usageErrorf("--volume-attach-limit and --reserved-volume-attachments exclude each other: the one is the limit itself, the other is taken off the limit of the instance type")
	}
	return e.checkSources()
}

// checkSources changes the names of the sources to their one spelling. The reference
// driver ignores their case and the spaces around them.
func (e *ebsConfig) checkSources() error {
	var sources []string
	for _, source := range e.sources {
		source = strings.ToLower(strings.TrimSpace(source))
		if !slices.Contains(metadataSources(), source) {
			return usageErrorf("--metadata-sources: %q is none of %s", source, strings.Join(metadataSources(), ", "))
		}
		if !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	e.sources = sources
	return nil
}

// metadataSources are the names that --metadata-sources accepts.
func metadataSources() []string { return []string{sourceIMDS, sourceKubernetes, sourceLabeler} }

func (e *ebsConfig) reading() params.Reading {
	if e.strict {
		return params.Strict
	}
	return params.Lenient
}

func (e *ebsConfig) limits() (l limits.Config) {
	if e.volumes >= 0 {
		l.Volumes = &e.volumes
	}
	if e.reserved >= 0 {
		l.Reserved = &e.reserved
	}
	return l
}
