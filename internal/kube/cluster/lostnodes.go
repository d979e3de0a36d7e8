package cluster

import "github.com/prometheus/client_golang/prometheus"

// ShowLostNodes exports how many nodes with volumes of the driver are lost: they do not exist,
// lack the driver or are not ready. count is called at each scrape.
func (e *Env) ShowLostNodes(count func() int) {
	if e.Registerer == nil {
		return
	}
	metric := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_lost_nodes", ConstLabels: prometheus.Labels{"driver_name": e.Driver},
		Help: "Nodes with volumes of the driver that do not exist, are not ready or do not run the driver.",
	}, func() float64 { return float64(count()) })
	if err := e.Registerer.Register(metric); err != nil {
		e.Logger.Warn("the metric of lost nodes is missing", "error", err)
	}
}
