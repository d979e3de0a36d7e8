package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// node is one process of a driver on a node.
func node() page {
	return page{
		name: "holdfast-node", title: "Holdfast / Node",
		description: "The driver on one node: its pool, its volumes and its calls.",
		variables:   []cog.Builder[dashboard.VariableModel]{jobs("holdfast_rpc_in_flight"), instances("holdfast_rpc_in_flight")},
		rows: []row{
			{"Now", []panel{
				value("Space available", bytes, "", "sum(holdfast_pool_available_bytes"+one+")", ""),
				value("Volumes", number, "", "sum(holdfast_volumes"+one+")", ""),
				alarm("Conditions of the pool", "Adverse conditions that the driver reports.", "sum(holdfast_pool_condition"+one+") or vector(0)", ""),
				alarm("Abnormal volumes", "", "sum(holdfast_volume_condition"+one+") or vector(0)", ""),
			}},
			pools(one), volumes(one), calls(one), steps("Steps", "holdfast_step_seconds", one), processes(one),
		},
	}
}
