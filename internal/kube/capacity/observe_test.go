package capacity

import (
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// asked counts the questions about a zone.
func asked(driver *csidriver.Driver, zone string) (n int) {
	for _, r := range driver.CapacityRequests() {
		if r.GetAccessibleTopology().GetSegments()["zone"] == zone {
			n++
		}
	}
	return n
}

func volume(zones ...string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: zones}},
	}}}}
	return pv
}

// inRack narrows a volume to a rack, which is smaller than the segments of the driver.
func inRack(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	expressions := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions
	*expressions = append(*expressions, corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"1"}})
	return pv
}

func TestObserve_refreshesTheAffectedSegments(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(*Controller)
		a, b   int
	}{
		"a volume was made in a": {func(c *Controller) { c.Created("one", []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}) }, 1, 0},
		"one was made in a rack of b": {func(c *Controller) {
			c.Created("one", []*csi.Topology{{Segments: map[string]string{"zone": "b", "rack": "1"}}})
		}, 0, 1},
		"one was made, without a segment":  {func(c *Controller) { c.Created("one", []*csi.Topology{{}}) }, 0, 0},
		"one could not be made":            {func(c *Controller) { c.Failed("one") }, 1, 1},
		"one of an unknown class failed":   {func(c *Controller) { c.Failed("another") }, 0, 0},
		"one was deleted in b":             {func(c *Controller) { c.Deleted(volume("b")) }, 0, 1},
		"one was deleted that was in both": {func(c *Controller) { c.Deleted(volume("a", "b")) }, 1, 1},
		"one was deleted in a rack of b":   {func(c *Controller) { c.Deleted(inRack(volume("b"))) }, 0, 1},
		"one without affinity was deleted": {func(c *Controller) { c.Deleted(&corev1.PersistentVolume{}) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			driver := newDriver()
			k := world(t, driver)
			k.Add(class("one"))
			controller, _ := begin(k, Options{})
			want(t, k, "one zone=a 100/50", "one zone=b 200/100")
			time.Sleep(20 * time.Millisecond) // past the gap
			a, b := asked(driver, "a"), asked(driver, "b")
			c.happen(controller)
			k.Eventually(func() error {
				if gotA, gotB := asked(driver, "a")-a, asked(driver, "b")-b; gotA != c.a || gotB != c.b {
					return fmt.Errorf("asked %d and %d times, not %d and %d", gotA, gotB, c.a, c.b)
				}
				return nil
			})
			k.Never(30*time.Millisecond, func() error {
				if gotA, gotB := asked(driver, "a")-a, asked(driver, "b")-b; gotA != c.a || gotB != c.b {
					return fmt.Errorf("asked %d and %d times", gotA, gotB)
				}
				return nil
			})
		})
	}
}

func TestObserve_aBurstCausesOneCallPerGap(t *testing.T) {
	driver := newDriver()
	k := world(t, driver)
	k.Add(class("one"))
	controller := fast(k.Env, Options{})
	controller.gap = 100 * time.Millisecond
	k.Run(k.Env, controller)
	want(t, k, "one zone=a 100/50", "one zone=b 200/100")
	before := asked(driver, "a")
	start := time.Now()
	for range 1000 {
		controller.Created("one", []*csi.Topology{{Segments: map[string]string{"zone": "a"}}})
	}
	k.Eventually(func() error {
		if asked(driver, "a") == before {
			return fmt.Errorf("not asked")
		}
		return nil
	})
	time.Sleep(250 * time.Millisecond)
	n := asked(driver, "a") - before // counted before the clock is read, which may be late
	took := time.Since(start)
	if most := int(took/controller.gap) + 1; n > most {
		t.Errorf("asked %d times in %v for a gap of %v", n, took, controller.gap)
	}
}

func TestObserve_beforeRunNothingIsQueued(t *testing.T) {
	driver := newDriver()
	k := world(t, driver)
	k.Add(class("one"))
	controller := fast(k.Env, Options{})
	k.Start()
	controller.Failed("one")
	controller.Created("one", nil)
	controller.Deleted(volume("a"))
	if n := controller.queue.Len(); n > 1 { // the plan alone
		t.Errorf("%d keys wait", n)
	}
}

func gauges(t *testing.T, registerer prometheus.Registerer) map[string]float64 {
	t.Helper()
	registry, ok := registerer.(*prometheus.Registry)
	if !ok {
		t.Fatal("no registry")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetType() == dto.MetricType_GAUGE && len(family.GetMetric()) == 1 {
			found[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	k := world(t, newDriver())
	k.Add(class("one"), object("csisc-gone", "one", "z", 3))
	controller := fast(k.Env, Options{})
	controller.grace = time.Hour
	k.Run(k.Env, controller)
	want(t, k, "one zone=a 100/50", "one zone=b 200/100", "one zone=z 3")
	k.Eventually(func() error {
		got := gauges(t, k.Env.Registerer)
		if got["csistoragecapacities_desired_goal"] != 2 || got["csistoragecapacities_desired_current"] != 2 || got["csistoragecapacities_obsolete"] != 1 {
			return fmt.Errorf("metrics %v", got)
		}
		return nil
	})
}

func TestUntilNext_spreadsAndKeepsTheInterval(t *testing.T) {
	const poll = time.Minute
	now := time.Unix(1_700_000_000, 0)
	var eighths [8]int
	for i := range 1000 {
		key := fmt.Sprint("zone=", i)
		first := untilNext(key, poll, now)
		if first < poll/2 || first >= poll+poll/2 {
			t.Fatalf("%s: first after %v", key, first)
		}
		eighths[first%poll*8/poll]++
		if second := untilNext(key, poll, now.Add(first)); second != poll {
			t.Fatalf("%s: second after %v", key, second)
		}
	}
	for i, n := range eighths {
		if n < 60 || n > 190 {
			t.Errorf("%d of 1000 questions in eighth %d of the interval", n, i)
		}
	}
}
