package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// gathered returns the values of a registry by name and the values of the labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			values[family.GetName()+labelsOf(metric)] = metric.GetGauge().GetValue()
		}
	}
	return values
}

func labelsOf(metric *dto.Metric) string {
	var text strings.Builder
	for _, label := range metric.GetLabel() {
		text.WriteString(" " + label.GetValue())
	}
	return text.String()
}

func TestOperations_countsThoseOfAllPartsAndTheOldest(t *testing.T) {
	registry := prometheus.NewRegistry()
	hourAgo := time.Now().Add(-time.Hour)
	for _, part := range []struct {
		kinds []string
		seen  []Operation
	}{
		{[]string{"provision", "delete"}, []Operation{
			{"provision", "DeadlineExceeded", hourAgo, ""}, {"provision", "DeadlineExceeded", time.Now(), ""}, {"provision", ReasonQuarantined, hourAgo, ""},
		}},
		{[]string{"attach"}, []Operation{{"attach", ReasonRunning, hourAgo, ""}}},
	} {
		operations, err := OperationsOf(registry)
		if err != nil {
			t.Fatal(err)
		}
		operations.Watch("d", part.kinds, func(report func(Operation)) {
			for _, operation := range part.seen {
				report(operation)
			}
		})
	}
	got := gathered(t, registry)
	for name, want := range map[string]float64{
		"holdfast_operations d provision DeadlineExceeded": 2, "holdfast_operation_oldest_seconds d provision DeadlineExceeded": 3600,
		"holdfast_operations d provision quarantined": 1, "holdfast_operation_oldest_seconds d provision quarantined": 3600,
		"holdfast_operations d attach running": 1, "holdfast_operation_oldest_seconds d attach running": 3600,
		"holdfast_operations d delete running": 0, "holdfast_operation_oldest_seconds d delete running": 0,
		"holdfast_operations d provision running": 0, "holdfast_operation_oldest_seconds d provision running": 0,
	} {
		value, found := got[name]
		if !found || value < want || value > want+60 {
			t.Errorf("%s is %v (%t), want %v", name, value, found, want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("there is also %v", got)
	}
}

func TestOperations_areGoneAfterStop(t *testing.T) {
	registry := prometheus.NewRegistry()
	operations, err := OperationsOf(registry)
	if err != nil {
		t.Fatal(err)
	}
	stop := operations.Watch("d", []string{"attach"}, func(func(Operation)) {})
	if got := gathered(t, registry); len(got) != 2 {
		t.Fatalf("an idle part has %v", got)
	}
	stop()
	if got := gathered(t, registry); len(got) != 0 {
		t.Errorf("after stop there is %v", got)
	}
}

func TestOperations_passPromlint(t *testing.T) {
	registry := prometheus.NewRegistry()
	operations, err := OperationsOf(registry)
	if err != nil {
		t.Fatal(err)
	}
	operations.Watch("d", []string{"attach"}, func(func(Operation)) {})
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
