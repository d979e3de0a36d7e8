package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/rules"
)

// ebs is the driver of EBS: its controller's requests to EC2, and its nodes' volumes.
func ebs() page {
	return page{
		name: "holdfast-ebs", title: "Holdfast / EBS",
		description: "Requests to EC2, attachments, and the statistics of EBS volumes.",
		variables:   []cog.Builder[dashboard.VariableModel]{jobs("holdfast_ec2_queue_length")},
		rows: []row{
			{"EC2", []panel{
				lines("Requests", perSecond, "Requests that succeeded.",
					query{observations("aws_ebs_csi_api_request_duration_seconds", "", "request"), "{{request}}"}),
				lines("Duration, 99 %", seconds, "",
					query{rules.Quantile(0.99, "aws_ebs_csi_api_request_duration_seconds", "", "request", window), "{{request}}"}),
				lines("Errors", perSecond, "By EC2's code. Throttled requests are not in it.",
					query{rate("aws_ebs_csi_api_request_errors_total", "", "request, code"), "{{request}} {{code}}"}),
				lines("Throttled", perSecond, "",
					query{rate("aws_ebs_csi_api_request_throttles_total", "", "operation_name"), "{{operation_name}}"}),
				lines("Requests that wait", number, "", query{"sum by (request) (holdfast_ec2_queue_length)", "{{request}}"}),
				lines("Pace", perSecond, "Of actions that EC2 throttled.", query{"min by (request) (holdfast_ec2_pace_per_second)", "{{request}}"}),
			}},
			{"Attachments", []panel{
				lines("Attachments that wait", number, "", query{"sum by (driver_name, operation) (holdfast_attachments_pending)", "{{driver_name}} {{operation}}"}),
				lines("Oldest attachment that waits", seconds, "",
					query{"max by (driver_name, operation) (holdfast_attachments_oldest_seconds)", "{{driver_name}} {{operation}}"}),
				lines("Volumes that take long to detach", seconds, "",
					query{"max by (volume_id, instance_id, attachment_state) (aws_ebs_csi_ec2_detach_pending_seconds_total)", "{{volume_id}} {{attachment_state}}"}),
				lines("Volumes that an instance takes", number, "", query{"holdfast_ebs_volume_limit", "{{instance}}"}),
			}},
			{"Volumes", []panel{
				lines("Operations", perSecond, "",
					query{rate("aws_ebs_csi_read_ops_total", "", "volume_id"), "{{volume_id}} read"},
					query{rate("aws_ebs_csi_write_ops_total", "", "volume_id"), "{{volume_id}} write"}),
				lines("Throughput", byteRate, "",
					query{rate("aws_ebs_csi_read_bytes_total", "", "volume_id"), "{{volume_id}} read"},
					query{rate("aws_ebs_csi_write_bytes_total", "", "volume_id"), "{{volume_id}} write"}),
				lines("More asked than the volume gives", ratio, "Part of the time in which more IOPS or throughput was asked of the volume than it has.",
					query{rate("aws_ebs_csi_exceeded_iops_seconds_total", "", "volume_id"), "{{volume_id}} IOPS"},
					query{rate("aws_ebs_csi_exceeded_tp_seconds_total", "", "volume_id"), "{{volume_id}} throughput"}),
				lines("Operations under way", number, "", query{"aws_ebs_csi_volume_queue_length", "{{volume_id}}"}),
			}},
		},
	}
}
