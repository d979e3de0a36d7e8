package rules

import (
	"fmt"
	"time"
)

const (
	driver    = "The driver {{ $labels.driver_name }} on {{ $labels.instance }}"
	operation = driver + " has an operation {{ $labels.kind }} "
)

// drivers are the alerts about processes: drivers, the host, and their pages.
func drivers(clock Clock) []alert {
	return []alert{
		{
			name: "HoldfastTargetDown", severity: critical, after: 5 * time.Minute,
			// The second part keeps the alert of a target that has been down for longer than
			// the window: a target that is removed has no up.
			expr: fmt.Sprintf(`up == 0 and on (job, instance) (max by (job, instance) (last_over_time(holdfast_build_info[%s]))`+
				` or max by (job, instance) (last_over_time(ALERTS{alertname="HoldfastTargetDown",alertstate="firing"}[%[1]s])))`,
				clock.window(24*time.Hour)),
			summary: "Prometheus cannot read the metrics of {{ $labels.job }} on {{ $labels.instance }}.",
			impact:  "The process does not run, hangs, or cannot be reached. Every other alert about it is blind.",
		},
		{
			name: "HoldfastDriverHangs", severity: critical, after: 0,
			expr:    older(clock, "holdfast_rpc_oldest_seconds", "method", `="running"`, 10*time.Minute),
			summary: driver + " has been busy with a call {{ $labels.method }} for {{ $value | humanizeDuration }}.",
			impact:  "The driver or its storage hangs. The volume of the call cannot be used.",
		},
		{
			name: "HoldfastCallFails", severity: warning, after: 0,
			expr:    older(clock, "holdfast_rpc_oldest_seconds", "method", `!="running"`, 30*time.Minute),
			summary: driver + " has failed a call {{ $labels.method }} with {{ $labels.reason }} for {{ $value | humanizeDuration }}.",
			impact:  "The claim, pod or snapshot that needs the call waits. Its caller repeats the call until it succeeds.",
		},
		{
			name: "HoldfastOperationHangs", severity: critical, after: 0,
			expr:    older(clock, "holdfast_operation_oldest_seconds", "kind", `="running"`, 15*time.Minute),
			summary: operation + "that has been running for {{ $value | humanizeDuration }}.",
			impact:  "The driver does not answer, although each call has a time limit. Objects that need this operation wait.",
		},
		{
			name: "HoldfastOperationFails", severity: warning, after: 0,
			expr:    older(clock, "holdfast_operation_oldest_seconds", "kind", `!~"running|waiting|quarantined"`, 30*time.Minute),
			summary: operation + "that has failed with {{ $labels.reason }} for {{ $value | humanizeDuration }}.",
			impact:  "The claim, pod or snapshot that needs it waits. The operation is repeated until it succeeds.",
		},
		{
			name: "HoldfastDriverNotRegistered", severity: critical, after: 2 * time.Minute,
			expr:    "holdfast_driver_registered == 0",
			summary: driver + " is not registered.",
			impact:  "No pod on this machine can get or give back a volume of the driver. Mounted volumes keep working.",
		},
		{
			name: "HoldfastDriverUnhealthy", severity: critical, after: 2 * time.Minute,
			expr:    "holdfast_driver_healthy == 0 and on (job, instance, driver_name) holdfast_driver_registered == 1",
			summary: driver + " is registered, and does not answer Probe.",
			impact:  "Calls wait. Mounted volumes keep working, unless the driver serves their I/O itself (FUSE).",
		},
		{
			name: "HoldfastDriverRestarts", severity: warning, after: 0,
			expr:    fmt.Sprintf("increase(holdfast_driver_restarts_total[%s]) > 3", clock.window(30*time.Minute)),
			summary: driver + " was restarted {{ $value | printf \"%.0f\" }} times within 30 minutes.",
			impact:  "Calls are interrupted and repeated. A FUSE driver loses its mounts each time.",
		},
		{
			name: "HoldfastCertificateExpires", severity: warning, after: 0,
			expr:    "holdfast_certificate_expiry_timestamp_seconds - time() < 7 * 24 * 3600",
			summary: "The certificate {{ $labels.file }} of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
			impact:  "Afterwards Prometheus and probes refuse the page; of a webhook, the API server does.",
		},
	}
}

// older is the condition that what a metric of ages counts is older than d, for some
// reasons.
func older(clock Clock, metric, kind, reasons string, d time.Duration) string {
	return fmt.Sprintf("max by (job, instance, driver_name, %s, reason) (%s{reason%s}) > %s", kind, metric, reasons, clock.seconds(d))
}
