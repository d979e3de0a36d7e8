package capacity

import "github.com/prometheus/client_golang/prometheus"

// register exports what alerts on external-provisioner know. The numbers are
// counted when they are read.
func (c *Controller) register(registerer prometheus.Registerer) {
	if registerer == nil {
		return
	}
	for name, gauge := range map[string]struct {
		help  string
		count func() int
	}{
		"desired_goal":    {"CSIStorageCapacity objects that there should be.", c.countGoals},
		"desired_current": {"CSIStorageCapacity objects that there should be and are.", c.countCurrent},
		"obsolete":        {"CSIStorageCapacity objects that there are and should not be.", c.countObsolete},
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

// countObsolete is all that is too many: without a goal, or a second one for it.
func (c *Controller) countObsolete() int {
	if c.goals() == nil { // not this process's business (yet)
		return 0
	}
	return max(0, len(c.objects.List())-c.countCurrent())
}
