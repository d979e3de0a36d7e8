package host

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func newObjectMetrics(objects *store.Store) *objectMetrics {
	m := &objectMetrics{
		claims: prometheus.NewDesc("holdfast_claims", "PersistentVolumeClaims of this machine, by phase.", []string{"phase"}, nil),
		pods:   prometheus.NewDesc("holdfast_pods", "Pods of this machine, by phase.", []string{"phase"}, nil),
		snapshots: prometheus.NewDesc("holdfast_snapshots",
			"VolumeSnapshots of this machine, by whether they can be restored.", []string{"ready"}, nil),
	}
	m.counts.Fresh, m.counts.Share = 5*time.Second, 20
	m.counts.Ask = func(context.Context) objectCounts { return count(objects) }
	return m
}

// count reads the objects. What cannot be read is missing from the counts; the store
// reports damage elsewhere.
func count(objects *store.Store) objectCounts {
	counts := objectCounts{
		claims:    map[string]int{string(corev1.ClaimPending): 0, string(corev1.ClaimBound): 0, string(corev1.ClaimLost): 0},
		pods:      map[string]int{string(corev1.PodPending): 0, string(corev1.PodRunning): 0, string(corev1.PodSucceeded): 0, string(corev1.PodFailed): 0},
		snapshots: map[string]int{"true": 0, "false": 0},
	}
	_ = objects.View(func(tx *store.Tx) error {
		claims, _ := tx.Claims().All()
		for _, claim := range claims {
			counts.claims[cmp.Or(string(claim.Status.Phase), string(corev1.ClaimPending))]++
		}
		pods, _ := tx.Pods().All()
		for _, pod := range pods {
			counts.pods[cmp.Or(string(pod.Status.Phase), string(corev1.PodPending))]++
		}
		snapshots, _ := tx.Snapshots().All()
		for _, snapshot := range snapshots {
			ready := snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse
			counts.snapshots[strconv.FormatBool(ready)]++
		}
		return nil
	})
	return counts
}

// Describe implements prometheus.Collector.
func (m *objectMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.claims, m.pods, m.snapshots} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *objectMetrics) Collect(to chan<- prometheus.Metric) {
	counts := m.counts.Get(time.Second).Value
	for desc, of := range map[*prometheus.Desc]map[string]int{m.claims: counts.claims, m.pods: counts.pods, m.snapshots: counts.snapshots} {
		for label, n := range of {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), label)
		}
	}
}

// driverMetrics are about the drivers that the host knows.
type driverMetrics struct {
	list                          func() []api.Driver
	registered, healthy, restarts *prometheus.Desc
}

func newDriverMetrics(list func() []api.Driver) *driverMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("holdfast_driver_"+name, help, []string{"driver_name"}, nil)
	}
	return &driverMetrics{
		list:       list,
		registered: desc("registered", "1 if an instance of the driver is registered, 0 if the host knows only its socket or its unit."),
		healthy:    desc("healthy", "1 if the driver is registered and its instance answers Probe, 0 otherwise."),
		restarts:   desc("restarts_total", "Processes of the driver that ended and that the host started again."),
	}
}

// Describe implements prometheus.Collector.
func (m *driverMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.registered, m.healthy, m.restarts} {
		to <- d
	}
}

// Collect implements prometheus.Collector. Sockets and units without a name have no
// series: their number has no bound.
func (m *driverMetrics) Collect(to chan<- prometheus.Metric) {
	for _, driver := range m.list() {
		if driver.Name == "" {
			continue
		}
		registered, healthy := 0.0, 0.0
		for _, instance := range driver.Instances {
			switch plugins.State(instance.State) {
			case plugins.StateRegistered:
				registered = 1
				if instance.Serving && !instance.Unready {
					healthy = 1
				}
			case plugins.StateAway:
				registered = 1
			}
		}
		to <- prometheus.MustNewConstMetric(m.registered, prometheus.GaugeValue, registered, driver.Name)
		to <- prometheus.MustNewConstMetric(m.healthy, prometheus.GaugeValue, healthy, driver.Name)
		if driver.Unit != nil {
			to <- prometheus.MustNewConstMetric(m.restarts, prometheus.CounterValue, float64(driver.Unit.Restarts), driver.Name)
		}
	}
}
