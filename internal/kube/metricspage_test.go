package kube

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// TestMetricsPage_hasThoseOfTheControllers runs the processes that have all of them: a
// central one that is elected, and one of a node.
func TestMetricsPage_hasThoseOfTheControllers(t *testing.T) {
	registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	cluster.Measured(registries[0])
	CallMetrics(registries[0], driverName)
	for i, node := range []string{"", "node-1"} {
		driver := attaching()
		driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY,
			csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH)
		c := apiserver.New(t, driver)
		p := start(t, options(c, func(o *Options) {
			o.Tuning.Capacity, o.Tuning.CapacityOwnerLevel = true, -1
			o.Registerer, o.Node, o.Elect, o.MetricsVolumes = registries[i], node, node == "", 1
		}))
		p.ready()
		if node == "" {
			eventually(t, func() error { return describes(registries[i], "leader_election_master_status") })
		}
		eventually(t, func() error { return describes(registries[i], "csistoragecapacities_desired_goal") })
	}
	metricstest.Check(t, metricstest.Part{
		Name: "controllers", Page: "../../docs/reference/metrics.md", Registries: registries,
		Histograms: []string{
			"csi_sidecar_operations_seconds", "rest_client_request_duration_seconds",
			"controller_persistentvolume_delete_duration_seconds", "controller_persistentvolumeclaim_provision_duration_seconds",
		},
		Gauges: []string{"holdfast_volume_info"},
	})
}

// describes returns an error until a metric is registered.
func describes(registry *prometheus.Registry, name string) error {
	channel := make(chan *prometheus.Desc)
	go func() {
		defer close(channel)
		registry.Describe(channel)
	}()
	found := fmt.Errorf("%s is not registered", name)
	for desc := range channel {
		if strings.Contains(desc.String(), strconv.Quote(name)) {
			found = nil
		}
	}
	return found
}
