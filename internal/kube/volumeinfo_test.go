package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// The process that provisions volumes has their claims as metrics.
func TestMetrics_haveTheClaimsOfVolumes(t *testing.T) {
	c := apiserver.New(t, csidriver.New(driverName), newClass())
	registry := prometheus.NewRegistry()
	start(t, options(c, func(o *Options) { o.Registerer, o.MetricsVolumes = registry, 1 })).ready()
	c.Add(newClaim("data"))
	eventually(t, func() error {
		pv, err := volumeOf(c, "data")
		if err != nil {
			return err
		}
		want := fmt.Sprintf("volume_info %s ns %s data %s 1", driverName, pv.Name, pv.Spec.CSI.VolumeHandle)
		if got := metricstest.Series(t, registry); !strings.Contains(got, want) {
			return fmt.Errorf("%q is not among\n%s", want, got)
		}
		return nil
	})
}
