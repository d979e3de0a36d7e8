package kube

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/kube/capacity"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// Limits are how much the controllers do at once, how long a call of the driver may take
// and when failures are retried: for all of them, and for each as far as it differs.
type Limits struct {
	All                                                        cluster.Limits
	Provisioner, Attacher, Resizer, Snapshotter, HealthMonitor cluster.Limits
	// ModifyTimeout is that of ControllerModifyVolume; 0 means the resizer's.
	ModifyTimeout time.Duration
	// CapacityWorkers is how many GetCapacity calls run at once; 0 means
	// capacity.DefaultWorkers.
	CapacityWorkers int
	// SourceWorkers is how many sources of copies have their finalizers removed at once; 0
	// means the provisioner's workers.
	SourceWorkers int
}

// limited are the limits of one controller, with the prefix of its flags. The prefixes are
// those of KEP-4958.
type limited struct {
	prefix string
	limits *cluster.Limits
	// polls: the controller polls, and has no queue whose keys are retried.
	polls bool
}

func (l *Limits) each() []limited {
	return []limited{
		{prefix: "provisioner", limits: &l.Provisioner},
		{prefix: "attacher", limits: &l.Attacher},
		{prefix: "resizer", limits: &l.Resizer},
		{prefix: "snapshotter", limits: &l.Snapshotter},
		{prefix: "health-monitor", limits: &l.HealthMonitor, polls: true},
	}
}

// Bind declares the flags: --worker-threads, --timeout, --retry-interval-start and
// --retry-interval-max for all controllers, and the same behind the name of one.
func (l *Limits) Bind(flags *pflag.FlagSet) {
	flags.IntVar(&l.All.Workers, "worker-threads", work.DefaultWorkers,
		"items of one kind and class in progress at most")
	flags.DurationVar(&l.All.Timeout, "timeout", cluster.DefaultTimeout, "longest time for one call of the driver")
	flags.DurationVar(&l.All.Retry.Start, "retry-interval-start", work.DefaultRetryStart,
		"first pause after a failure; it doubles each time")
	flags.DurationVar(&l.All.Retry.Max, "retry-interval-max", work.DefaultRetryMax, "longest pause after a failure")
	for _, c := range l.each() {
		flags.DurationVar(&c.limits.Timeout, c.prefix+"-timeout", 0, "--timeout of the "+c.prefix+" (0: the same)")
		workers := "--worker-threads of the " + c.prefix + " (0: the same)"
		if c.polls {
			workers = "volumes whose health is asked for at once (0: 10)"
		}
		flags.IntVar(&c.limits.Workers, c.prefix+"-worker-threads", 0, workers)
		if c.polls {
			continue
		}
		flags.DurationVar(&c.limits.Retry.Start, c.prefix+"-retry-interval-start", 0,
			"--retry-interval-start of the "+c.prefix+" (0: the same)")
		flags.DurationVar(&c.limits.Retry.Max, c.prefix+"-retry-interval-max", 0,
			"--retry-interval-max of the "+c.prefix+" (0: the same)")
	}
	flags.DurationVar(&l.ModifyTimeout, "resizer-modify-timeout", 0,
		"longest time for one ControllerModifyVolume (0: that of the resizer's other calls)")
	flags.IntVar(&l.CapacityWorkers, "capacity-threads", capacity.DefaultWorkers,
		"GetCapacity calls of one class in progress at most")
	flags.IntVar(&l.SourceWorkers, "cloning-protection-threads", 0,
		"sources of copies whose finalizers are removed at once (0: the provisioner's --worker-threads)")
}

// Check rejects limits with which no call could succeed. Its error names the flag.
func (l *Limits) Check() error {
	if l.All.Timeout <= 0 {
		return fmt.Errorf("--timeout: %v is not above zero", l.All.Timeout)
	}
	if l.ModifyTimeout < 0 {
		return fmt.Errorf("--resizer-modify-timeout: %v is below zero", l.ModifyTimeout)
	}
	if err := checkRetry("", l.All.Retry); err != nil {
		return err
	}
	for _, c := range l.each() {
		if c.limits.Timeout < 0 {
			return fmt.Errorf("--%s-timeout: %v is below zero", c.prefix, c.limits.Timeout)
		}
		if err := checkRetry(c.prefix+"-", c.limits.Or(l.All).Retry); err != nil {
			return err
		}
	}
	return nil
}

func checkRetry(prefix string, retry work.Retry) error {
	if retry.Start > retry.Max {
		return fmt.Errorf("--%sretry-interval-start: %v is above --%sretry-interval-max, %v",
			prefix, retry.Start, prefix, retry.Max)
	}
	return nil
}

// LongestTimeout is that of the calls that may take the longest.
func (l *Limits) LongestTimeout() time.Duration {
	longest := max(l.All.Timeout, l.ModifyTimeout)
	for _, c := range l.each() {
		longest = max(longest, c.limits.Timeout)
	}
	return longest
}

// of returns the limits of a role, as far as they differ from those of all.
func (l *Limits) of(role Role) cluster.Limits {
	switch role {
	case rights.Provision:
		return l.Provisioner
	case rights.Attach:
		return l.Attacher
	case rights.Resize:
		return l.Resizer
	case rights.Snapshot, rights.GroupSnapshot:
		return l.Snapshotter
	case rights.Health:
		return l.HealthMonitor
	}
	return cluster.Limits{}
}
