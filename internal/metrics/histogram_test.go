package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// written returns the histogram that a registry exposes.
func written(t *testing.T, collector prometheus.Collector) *dto.Histogram {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	return families[0].GetMetric()[0].GetHistogram()
}

func TestHistograms_haveClassicAndNativeBuckets(t *testing.T) {
	options := prometheus.HistogramOpts{Name: "holdfast_test_seconds", Help: "Time of a test.", Buckets: []float64{.5, 2}}
	one, many := NewHistogram(options), NewHistogramVec(options, "step")
	for range 3 {
		one.Observe(1)
		many.WithLabelValues("mount").Observe(1)
	}
	for name, collector := range map[string]prometheus.Collector{"one": one, "many": many} {
		got := written(t, collector)
		if buckets := got.GetBucket(); len(buckets) != 2 || buckets[0].GetCumulativeCount() != 0 || buckets[1].GetCumulativeCount() != 3 {
			t.Errorf("%s: the classic buckets are %v", name, buckets)
		}
		// Schema 3 has buckets that grow by 2^(2^-3) = 1.09, the widest below 1.1.
		if got.GetSchema() != 3 || len(got.GetPositiveSpan()) != 1 || got.GetPositiveDelta()[0] != 3 {
			t.Errorf("%s: schema %d, spans %v, deltas %v", name, got.GetSchema(), got.GetPositiveSpan(), got.GetPositiveDelta())
		}
	}
}

func TestHistograms_areBounded(t *testing.T) {
	histogram := NewHistogram(prometheus.HistogramOpts{Name: "holdfast_test_seconds", Help: "Time of a test."})
	for value := 1e-9; value < 1e9; value *= 1.05 {
		histogram.Observe(value)
	}
	if got := len(written(t, histogram).GetPositiveDelta()); got > nativeBuckets {
		t.Errorf("%d native buckets, want %d at most", got, nativeBuckets)
	}
}
