package lease

import "github.com/spf13/pflag"

// Bind declares the flags of the election, with the names of the sidecars' flags.
func (o *Options) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.Namespace, "leader-election-namespace", "", "`NAMESPACE` of the lease (default: that of --namespace)")
	flags.DurationVar(&o.Duration, "leader-election-lease-duration", DefaultDuration, "how long other processes wait after the last renewal of the lease")
	flags.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", DefaultRenewDeadline, "how long the process retries a renewal")
	flags.DurationVar(&o.RetryPeriod, "leader-election-retry-period", DefaultRetryPeriod, "pause between two attempts to acquire or renew the lease")
	flags.StringToStringVar(&o.Labels, "leader-election-labels", nil, "labels of the lease")
}
