package apiserver

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Metrics returns the gauges and counters of a process by their names and the values of
// their labels, as in "holdfast_operations d.example attach running".
func (c *Cluster) Metrics(env *cluster.Env) map[string]float64 {
	c.t.Helper()
	registry, ok := env.Registerer.(*prometheus.Registry)
	if !ok {
		c.t.Fatalf("the registerer is a %T", env.Registerer)
	}
	families, err := registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			values[series(family, metric)] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return values
}

func series(family *dto.MetricFamily, metric *dto.Metric) string {
	name := []string{family.GetName()}
	for _, label := range metric.GetLabel() {
		name = append(name, label.GetValue())
	}
	return strings.Join(name, " ")
}

// Unfinished waits until a process exports so many operations of a kind for a reason.
func (c *Cluster) Unfinished(env *cluster.Env, kind, reason string, count int) {
	c.t.Helper()
	name := strings.Join([]string{"holdfast_operations", env.Driver, kind, reason}, " ")
	c.Eventually(func() error {
		if metrics := c.Metrics(env); int(metrics[name]) != count {
			return fmt.Errorf("%s is %v, want %d; there is %v", name, metrics[name], count, operations(metrics))
		}
		return nil
	})
}

// operations selects the metrics of unfinished operations that are not zero.
func operations(metrics map[string]float64) map[string]float64 {
	found := map[string]float64{}
	for name, value := range metrics {
		if strings.HasPrefix(name, "holdfast_operation") && value != 0 {
			found[name] = value
		}
	}
	return found
}
