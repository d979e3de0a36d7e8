package cloud

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// gathered returns the values of a registry, of histograms the number of observations, by
// the name and the values of the labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := []string{family.GetName()}
			for _, label := range metric.GetLabel() {
				name = append(name, label.GetValue())
			}
			values[strings.Join(name, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestMetrics_ofRepeatedRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	emulated(t, bench(), Options{Registerer: registry}, func(t *testing.T, r *rig) {
		r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultThrottle, Action: "CreateVolume", Count: 2})
		r.fault(t, drop("CreateVolume", 1))
		r.volume(t, "pvc-1")
		got := gathered(t, registry)
		for name, want := range map[string]float64{
			"holdfast_ec2_retries_total throttled CreateVolume": 2, "holdfast_ec2_retries_total lost_answer CreateVolume": 1,
			"aws_ebs_csi_api_request_throttles_total CreateVolume": 2, "aws_ebs_csi_api_request_duration_seconds CreateVolume": 1,
			"holdfast_ec2_queue_wait_seconds CreateVolume": 4, "holdfast_ec2_requests_in_flight CreateVolume": 0,
			"holdfast_ec2_queue_length CreateVolume": 0, "holdfast_ec2_queue_oldest_seconds CreateVolume": 0,
		} {
			if value, found := got[name]; !found || value != want {
				t.Errorf("%s is %v (%t), want %v; there is %v", name, value, found, want, got)
			}
		}
	})
}

func TestPace_ageOfTheOldestCall(t *testing.T) {
	now := time.Now()
	a := &pace{}
	if age := a.oldest(now); age != 0 {
		t.Errorf("without a call the age is %v", age)
	}
	// A repeated call keeps its number and the time at which it came.
	a.waiting = []*ticket{{came: now.Add(-time.Second)}, {came: now.Add(-time.Minute)}, {came: now}}
	if age := a.oldest(now); age != time.Minute {
		t.Errorf("the age is %v, want a minute", age)
	}
}

// Series are bounded, whatever an endpoint answers.
func TestErrorCodes_areBounded(t *testing.T) {
	var codes errorCodes
	for code, want := range map[string]string{
		"": "unreachable", "InvalidVolume.NotFound": "InvalidVolume.NotFound", "has space": "other", "AKIA/secret": "other", strings.Repeat("a", 65): "other",
	} {
		if got := codes.label(code); got != want {
			t.Errorf("%q has the label %q; want %q", code, got, want)
		}
	}
	labels := map[string]bool{}
	for i := range 10 * mostCodes {
		labels[codes.label("Invented"+strconv.Itoa(i))] = true
	}
	if len(labels) > mostCodes || codes.label("InvalidVolume.NotFound") != "InvalidVolume.NotFound" {
		t.Errorf("%d labels", len(labels))
	}
}
