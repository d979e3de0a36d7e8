package lease

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPeriod_manyContendersPollRarely: thousands of nodes contend for one lease.
func TestPeriod_manyContendersPollRarely(t *testing.T) {
	const retry = 2 * time.Second
	for name, row := range map[string]struct {
		contenders string
		renewed    time.Duration // ago
		want       time.Duration
	}{
		"a few":                        {"3", time.Second, retry},
		"many":                         {"5000", time.Second, 500 * time.Second},
		"many, and the holder is gone": {"5000", time.Minute, retry},
		"a holder that does not count": {"", time.Second, retry},
		"no number":                    {"x", time.Second, retry},
	} {
		seconds, renewed := int32(15), metav1.NewMicroTime(time.Now().Add(-row.renewed))
		c := &contender{options: Options{RetryPeriod: retry, clock: systemClock{}}, lease: &coordinationv1.Lease{
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed},
		}}
		if row.contenders != "" {
			c.lease.Annotations = map[string]string{contendersAnnotation: row.contenders}
		}
		if got := c.period(); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	eager := &contender{options: Options{RetryPeriod: retry, Eager: true, clock: systemClock{}}, lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contendersAnnotation: "5000"}},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro())},
	}}
	if got := eager.period(); got != retry {
		t.Errorf("one of few that follow many: %v", got)
	}
	if got := (&contender{options: Options{RetryPeriod: retry}}).period(); got != retry {
		t.Errorf("before the first answer: %v", got)
	}
}

// TestPeriod_manyContendersBackOffWhenReadsFail: an API server that starts after an outage,
// or together with thousands of nodes, must not be polled more often because it is slow.
func TestPeriod_manyContendersBackOffWhenReadsFail(t *testing.T) {
	const retry = 2 * time.Second
	seconds, renewed := int32(15), metav1.NewMicroTime(time.Now().Add(-time.Minute)) // the last that was read
	seen := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contendersAnnotation: "5000"}},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	few := Options{RetryPeriod: retry, Duration: 15 * time.Second, clock: systemClock{}}
	many := few
	many.Contenders = func() int { return 0 }
	for name, row := range map[string]struct {
		options  Options
		lease    *coordinationv1.Lease
		failures int
		want     time.Duration
	}{
		"no failure":                   {many, nil, 0, retry},
		"one":                          {many, nil, 1, 2 * retry},
		"two, of a lease seen earlier": {many, seen, 2, 4 * retry},
		"for a long time":              {many, seen, 1000, 15 * time.Second},
		"of a few contenders":          {few, seen, 1000, retry},
	} {
		c := &contender{options: row.options, lease: row.lease, failures: row.failures}
		if got := c.period(); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
