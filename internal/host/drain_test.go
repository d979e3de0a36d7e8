package host

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A pod has its whole grace period during a drain.
func TestDrainLimit_exceedsTheGracePeriod(t *testing.T) {
	for _, seconds := range []int64{0, 30, 600} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds}}
		if got := drainLimit(pod); got <= time.Duration(seconds)*time.Second {
			t.Errorf("a grace period of %d s is cut after %s", seconds, got)
		}
	}
}
