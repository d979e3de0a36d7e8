package capacity

import "github.com/prometheus/client_golang/prometheus"

// register exports the gauges of external-provisioner, so that its alerts keep
// working. The values are counted when they are read.
func (c *Controller) register(registerer prometheus.Registerer) {
	if registerer == nil {
		return
	}
	for name, gauge := range map[string]struct {
		help  string
		count func() int
	}{
		"desired_goal":    {"Desired CSIStorageCapacity objects.", c.countGoals},
		"desired_current": {"Desired CSIStorageCapacity objects that exist.", c.countCurrent},
		"obsolete":        {"CSIStorageCapacity objects that exist and are not desired.", c.countObsolete},
	} {
		metric := prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "csistoragecapacities_" + name, Help: gauge.help},
			func() float64 { return float64(gauge.count()) },
		)
		if err := registerer.Register(metric); err != nil {
			c.log.Warn("a metric is missing", "metric", name, "error", err)
		}
	}
}

func (c *Controller) goals() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan == nil {
		return nil
	}
	return c.plan.goals
}

func (c *Controller) countGoals() int { return len(c.goals()) }

func (c *Controller) countCurrent() (n int) {
	for goal := range c.goals() {
		if len(c.objects.By(byGoal(), goal)) > 0 {
			n++
		}
	}
	return n
}

// countObsolete counts objects without a goal, and all but one for each goal.
func (c *Controller) countObsolete() int {
	if c.goals() == nil { // this process does not lead, or has no plan yet
		return 0
	}
	return max(0, len(c.objects.List())-c.countCurrent())
}
