package nodeside

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
)

// gauges report the limit and its parts.
type gauges struct {
	limit prometheus.Gauge
	slots *prometheus.GaugeVec
}

func newGauges(registerer prometheus.Registerer) (*gauges, error) {
	g := &gauges{
		limit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_ebs_volume_limit",
			Help: "Volumes of the driver that this instance can take, as reported to the orchestrator.",
		}),
		slots: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_ebs_attachment_slots",
			Help: "Slots of the instance type, and those that volumes of others and network interfaces use.",
		}, []string{"part"}),
	}
	if registerer == nil {
		return g, nil
	}
	for _, c := range []prometheus.Collector{g.limit, g.slots} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of the attach limit: %w", err)
		}
	}
	return g, nil
}

func (g *gauges) set(r limits.Result) {
	g.limit.Set(float64(r.Volumes))
	for part, value := range map[string]int64{"type": r.Slots, "reserved": r.Reserved, "interfaces": r.Interfaces} {
		g.slots.WithLabelValues(part).Set(float64(value))
	}
}
