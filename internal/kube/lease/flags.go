package lease

import "github.com/spf13/pflag"

// Bind declares the flags, under the names that the sidecars' flags have.
func (o *Options) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.Namespace, "leader-election-namespace", "", "`NAMESPACE` of the lease (default: that of --namespace)")
	flags.DurationVar(&o.Duration, "leader-election-lease-duration", DefaultDuration, "how long others wait for a process that renews the lease no more")
	flags.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", DefaultRenewDeadline, "how long one renewal is tried")
	flags.DurationVar(&o.RetryPeriod, "leader-election-retry-period", DefaultRetryPeriod, "pause between two tries to take or renew the lease")
	flags.StringToStringVar(&o.Labels, "leader-election-labels", nil, "labels of the lease")
	flags.BoolVar(&o.HoldUpstream, "hold-upstream-leases", false, "hold the leases of the sidecars, too, while moving from them: those that elect stay passive")
}
