package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// volume is one volume, of drivers that serve metrics of volumes
// (--metrics-volumes).
func volume() page {
	const chosen = `{job=~"$job", volume_id="$volume"}`
	per := func(counter string) string { return rate(counter, chosen, "volume_id") }
	mean := func(operation string) string {
		return fmt.Sprintf("%s / (%s > 0)", per("holdfast_volume_"+operation+"_seconds_total"), per("holdfast_volume_"+operation+"s_total"))
	}
	return page{
		name: "holdfast-volume", title: "Holdfast / Volume",
		description: "One volume: its space and its I/O. The driver or host needs --metrics-volumes.",
		variables: []cog.Builder[dashboard.VariableModel]{
			jobs("holdfast_volume_size_bytes"),
			choice("namespace", "Namespace", "holdfast_volume_size_bytes"+all, "namespace", true),
			choice("claim", "Claim", `holdfast_volume_size_bytes{job=~"$job", namespace=~"$namespace"}`, "persistentvolumeclaim", true),
			choice("volume", "Volume", `holdfast_volume_size_bytes{job=~"$job", namespace=~"$namespace", persistentvolumeclaim=~"$claim"}`, "volume_id", false),
		},
		rows: []row{
			{"Space", []panel{
				value("Claim", bytes, "Size of the volume of the claim.", "holdfast_volume_size_bytes"+chosen, "{{namespace}}/{{persistentvolumeclaim}} on {{instance}}"),
				value("Used", ratio, "", "holdfast_volume_used_bytes"+chosen+" / holdfast_volume_size_bytes"+chosen, ""),
				lines("Used and size", bytes, "",
					query{"holdfast_volume_used_bytes" + chosen, "used"}, query{"holdfast_volume_size_bytes" + chosen, "size"}),
			}},
			{"I/O", []panel{
				lines("Operations", perSecond, "", query{per("holdfast_volume_reads_total"), "reads"}, query{per("holdfast_volume_writes_total"), "writes"}),
				lines("Throughput", byteRate, "", query{per("holdfast_volume_read_bytes_total"), "read"}, query{per("holdfast_volume_written_bytes_total"), "written"}),
				lines("Duration of an operation", seconds, "Mean of the operations that ended.", query{mean("read"), "read"}, query{mean("write"), "write"}),
				lines("Busy", ratio, "Part of the time in which the volume had I/O under way.", query{per("holdfast_volume_io_seconds_total"), "busy"}),
			}},
		},
	}
}
