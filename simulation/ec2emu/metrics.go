package ec2emu

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collector reports the statistics as metrics. A reset sets the counters to 0, as a
// restart would.
type collector struct {
	server                                           *Server
	calls, throttled, retries, dryRuns, seconds, own *prometheus.Desc
}

// Collector is the metrics of the calls, by action and code.
func (s *Server) Collector() prometheus.Collector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ec2emu_"+name, help, labels, nil)
	}
	return &collector{
		server:    s,
		calls:     describe("calls_total", "Calls by action and by EC2's error code, OK or dropped.", "action", "code"),
		throttled: describe("throttled_total", "Calls refused for coming too fast.", "action"),
		retries:   describe("retries_total", "Calls that are repeated attempts by their header.", "action"),
		dryRuns:   describe("dry_runs_total", "Calls with DryRun.", "action"),
		seconds:   describe("call_seconds", "How long calls took.", "action"),
		own:       describe("caller_calls_total", "Calls by access key.", "caller"),
	}
}

func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.calls, c.throttled, c.retries, c.dryRuns, c.seconds, c.own} {
		descriptions <- d
	}
}

func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	statistics := c.server.Statistics()
	for action, a := range statistics.Actions {
		for code, n := range a.Codes {
			counter(c.calls, n, action, code)
		}
		counter(c.throttled, a.Throttled, action)
		counter(c.retries, a.Retries, action)
		counter(c.dryRuns, a.DryRuns, action)
		metrics <- prometheus.MustNewConstSummary(c.seconds, a.Calls, a.Seconds, nil, action)
	}
	for caller, n := range statistics.Callers {
		counter(c.own, n, caller)
	}
}
