package metricstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Series returns what a scrape finds, one line for each series, sorted: the name without
// holdfast_, the values of its labels but for those left out, and its value. That of a
// histogram is its count.
func Series(t *testing.T, gatherer prometheus.Gatherer, without ...string) string {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			words := []string{strings.TrimPrefix(family.GetName(), "holdfast_")}
			for _, label := range metric.GetLabel() {
				if !slices.Contains(without, label.GetName()) {
					words = append(words, label.GetValue())
				}
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			lines = append(lines, fmt.Sprint(strings.Join(words, " "), " ", value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// SeriesOf is Series of one collector.
func SeriesOf(t *testing.T, collector prometheus.Collector, without ...string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	return Series(t, registry, without...)
}
