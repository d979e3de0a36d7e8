package rules

import (
	"fmt"
	"time"
)

// ebs are the alerts about EC2.
func ebs(clock Clock) []alert {
	window := clock.window(rateWindow)
	return []alert{
		{
			name: "HoldfastEC2Throttled", severity: warning, after: 10 * time.Minute,
			expr: fmt.Sprintf("sum by (job, instance, operation_name) (rate(aws_ebs_csi_api_request_throttles_total[%s])) > 0.1", window),
			summary: "EC2 throttles {{ $labels.operation_name }} of {{ $labels.instance }}: " +
				"{{ $value | printf \"%.1f\" }} requests a second.",
			impact: "Volumes are attached and created more slowly. Other programs of the account are throttled, too.",
		},
		{
			name: "HoldfastEC2Fails", severity: warning, after: 15 * time.Minute,
			expr:    fmt.Sprintf("sum by (job, instance, request, code) (rate(aws_ebs_csi_api_request_errors_total[%s])) > 0.02", window),
			summary: "Requests {{ $labels.request }} of {{ $labels.instance }} to EC2 fail with {{ $labels.code }}.",
			impact:  "Volumes that need this request are not created, attached, changed or deleted.",
		},
		{
			name: "HoldfastDetachBusy", severity: warning, after: 0,
			expr: fmt.Sprintf("max by (volume_id, instance_id) (aws_ebs_csi_ec2_detach_pending_seconds_total) > %s", clock.seconds(10*time.Minute)),
			summary: "The volume {{ $labels.volume_id }} has been detaching from {{ $labels.instance_id }} for " +
				"{{ $value | humanizeDuration }}.",
			impact: "The volume cannot be attached to another instance. Its pod does not start there.",
		},
	}
}
