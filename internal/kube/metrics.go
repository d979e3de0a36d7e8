package kube

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// registerVolumeInfos exports the names of the driver's volumes, of a process that provisions
// them and so has them in memory.
func (c *Controllers) registerVolumeInfos() error {
	if c.options.MetricsVolumes == 0 || c.options.Registerer == nil || !slices.Contains(c.options.Wanted, rights.Provision) {
		return nil
	}
	return c.options.Registerer.Register(metrics.NewVolumeInfos(c.options.MetricsVolumes, func() (infos []metrics.VolumeInfo) {
		env := c.env.Load()
		if env == nil || !env.Set.Synced() {
			return nil
		}
		for _, pv := range env.Set.Volumes().List() {
			if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != env.Driver || pv.Spec.ClaimRef == nil {
				continue
			}
			infos = append(infos, metrics.VolumeInfo{Driver: env.Driver, ID: pv.Spec.CSI.VolumeHandle, PersistentVolume: pv.Name,
				Namespace: pv.Spec.ClaimRef.Namespace, Claim: pv.Spec.ClaimRef.Name})
		}
		return infos
	}))
}

// CallMetrics measures the calls to the driver in the metric of the sidecars
// (csi-lib-utils, metrics), so that their alerts keep working. The result is for
// csiclient.Options.Observe.
func CallMetrics(registerer prometheus.Registerer, driver string) func(method, code string, took time.Duration) {
	seconds := metrics.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_sidecar_operations_seconds",
		Help:    "Duration of a call to the CSI driver, in seconds.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, "driver_name", "method_name", "grpc_status_code")
	registerer.MustRegister(seconds)
	return func(method, code string, took time.Duration) {
		seconds.WithLabelValues(driver, method, code).Observe(took.Seconds())
	}
}
