package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// cluster is the overview of all processes of Holdfast that a Prometheus scrapes.
func cluster() page {
	return page{
		name: "holdfast-cluster", title: "Holdfast / Cluster",
		description: "All drivers, controllers and pools.",
		variables:   []cog.Builder[dashboard.VariableModel]{jobs("holdfast_build_info")},
		rows: []row{
			{"Now", []panel{
				alarm("Alerts", "Alerts of Holdfast that fire.", `sum(ALERTS{alertname=~"Holdfast.*", alertstate="firing"}) or vector(0)`, ""),
				alarm("Targets down", "Processes whose metrics cannot be read.", `count(up`+all+` == 0) or vector(0)`, ""),
				alarm("Nodes lost", "Nodes with volumes that do not exist or are not ready.", "sum(max by (driver_name) (holdfast_lost_nodes"+all+")) or vector(0)", ""),
				alarm("Quarantined intents", "Volumes of which it is unknown whether they exist.", "sum(holdfast_provision_quarantined_intents"+all+") or vector(0)", ""),
				value("Volumes", number, "", "sum(holdfast_volumes"+all+")", ""),
				value("Space of all pools", bytes, "", "sum(holdfast_pool_size_bytes"+all+")", ""),
				value("Space available", bytes, "", "sum(holdfast_pool_available_bytes"+all+")", ""),
				value("Versions", number, "Processes by version.", "count by (version) (holdfast_build_info"+all+")", "{{version}}"),
			}},
			pools(all), volumes(all), operations(all), controllers(), queues(all), leases(),
			calls(all), steps("Steps of the drivers", "holdfast_step_seconds", all), processes(all),
		},
	}
}

// controllers is the row about claims, attachments and intents.
func controllers() row {
	return row{"Controllers", []panel{
		lines("Claims provisioned", perSecond, "",
			query{rate("controller_persistentvolumeclaim_provision_total", all, "class"), "{{class}}"},
			query{rate("controller_persistentvolumeclaim_provision_failed_total", all, "class"), "{{class}} failed"}),
		lines("Intents", number, "Volumes that are being created, those of which it is unknown whether they exist, and those of processes that are gone.",
			query{"sum(holdfast_provision_intents" + all + ")", "in progress"},
			query{"sum(holdfast_provision_quarantined_intents" + all + ")", "quarantined"},
			query{"max(holdfast_provision_unserved_intents" + all + ")", "unserved"}),
		lines("Attachments that wait", number, "",
			query{"sum by (driver_name, operation) (holdfast_attachments_pending" + all + ")", "{{driver_name}} {{operation}}"}),
		lines("Calls to drivers", perSecond, "By code.", query{
			observations("csi_sidecar_operations_seconds", all, "method_name, grpc_status_code"), "{{method_name}} {{grpc_status_code}}"}),
		lines("Requests to the API server", perSecond, "By code.", query{rate("rest_client_requests_total", all, "code"), "{{code}}"}),
		lines("Volumes without a recent health report", number, "",
			query{"sum by (driver_name) (holdfast_volume_health_stale_volumes" + all + ")", "{{driver_name}}"}),
	}}
}

func leases() row {
	return row{"Leases", []panel{
		lines("Holders", number, "Processes that hold each lease: 1 is right.",
			query{"sum by (name) (leader_election_master_status" + all + ")", "{{name}}"}),
		lines("Time since the last renewal", seconds, "",
			query{"min by (name) (holdfast_lease_renew_age_seconds" + all + ")", "{{name}}"}),
		lines("Changes of the holder", number, "In the last hour.",
			query{"sum by (name) (increase(holdfast_lease_transitions_total" + all + "[1h]))", "{{name}}"}),
	}}
}
