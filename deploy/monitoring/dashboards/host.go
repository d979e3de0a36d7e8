package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// host is one machine that runs `holdfast host`.
func host() page {
	return page{
		name: "holdfast-host", title: "Holdfast / Machine",
		description: "One machine with `holdfast host`: its drivers, objects and pools.",
		variables:   []cog.Builder[dashboard.VariableModel]{jobs("holdfast_driver_registered"), instances("holdfast_driver_registered")},
		rows: []row{
			{"Now", []panel{
				alarm("Drivers that are not registered", "", "count(holdfast_driver_registered"+one+" == 0) or vector(0)", ""),
				alarm("Drivers that are not healthy", "", "count(holdfast_driver_healthy"+one+" == 0) or vector(0)", ""),
				value("Pods", number, "By phase.", "sum by (phase) (holdfast_pods"+one+")", "{{phase}}"),
				value("Claims", number, "By phase.", "sum by (phase) (holdfast_claims"+one+")", "{{phase}}"),
			}},
			{"Objects", []panel{
				lines("Claims", number, "", query{"sum by (phase) (holdfast_claims" + one + ")", "{{phase}}"}),
				lines("Pods", number, "", query{"sum by (phase) (holdfast_pods" + one + ")", "{{phase}}"}),
				lines("Snapshots", number, "", query{"sum by (ready) (holdfast_snapshots" + one + ")", "ready: {{ready}}"}),
			}},
			{"Drivers", []panel{
				lines("Registered", number, "1 while the driver is registered.", query{"holdfast_driver_registered" + one, "{{driver_name}}"}),
				lines("Healthy", number, "1 while the registered driver answers Probe.", query{"holdfast_driver_healthy" + one, "{{driver_name}}"}),
				lines("Restarts", number, "In the last hour.", query{"increase(holdfast_driver_restarts_total" + one + "[1h])", "{{driver_name}}"}),
			}},
			pools(one), volumes(one), operations(one), queues(one),
			steps("Steps of the host", "holdfast_host_step_seconds", one), steps("Steps of its own driver", "holdfast_step_seconds", one), processes(one),
		},
	}
}
