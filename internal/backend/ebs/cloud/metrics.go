package cloud

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the names and labels of the AWS EBS CSI driver, so that dashboards and
// alerts for it keep working. Those of the queue have names of Holdfast.
type metrics struct {
	registerer prometheus.Registerer
	duration   *prometheus.HistogramVec
	errors     *prometheus.CounterVec
	throttles  *prometheus.CounterVec
	queue      *queueCollector
}

func newMetrics(registerer prometheus.Registerer, pace *pacer) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "aws_ebs_csi_api_request_duration_seconds",
			Help:    "Duration of successful requests to EC2, by action.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"request"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aws_ebs_csi_api_request_errors_total",
			Help: "Requests to EC2 that failed, by action and EC2's code, without throttled ones.",
		}, []string{"request", "code"}),
		throttles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aws_ebs_csi_api_request_throttles_total",
			Help: "Requests that EC2 throttled, by action.",
		}, []string{"operation_name"}),
		queue: newQueueCollector(pace),
	}
	if registerer == nil {
		return m, nil
	}
	for i, c := range m.all() {
		if err := registerer.Register(c); err != nil {
			for _, done := range m.all()[:i] {
				registerer.Unregister(done)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.errors, m.throttles, m.queue}
}

func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all() {
		m.registerer.Unregister(c)
	}
}

// observed records the outcome of a request, for metrics and health.
func (c *Client) observed(ctx context.Context, action string, began time.Time, failed *Error, kind outcome) {
	switch {
	case kind == throttled:
		c.metrics.throttles.WithLabelValues(action).Inc()
	case failed != nil:
		c.metrics.errors.WithLabelValues(action, firstOf(failed.Code, "unreachable")).Inc()
	default:
		c.metrics.duration.WithLabelValues(action).Observe(time.Since(began).Seconds())
	}
	if kind == staleAuth {
		c.credentials.invalidate()
	}
	if ctx.Err() != nil && failed != nil && failed.Code == "" && time.Since(began) < answerTime {
		return // its caller left
	}
	c.health.note(failed, kind)
}

// queueCollector reports the number of calls in the queue, and the pace.
type queueCollector struct {
	pace          *pacer
	waiting, rate *prometheus.Desc
}

func newQueueCollector(pace *pacer) *queueCollector {
	return &queueCollector{
		pace: pace,
		waiting: prometheus.NewDesc("holdfast_ec2_queue_length", "Requests to EC2 that wait in the queue, by action.",
			[]string{"request"}, nil),
		rate: prometheus.NewDesc("holdfast_ec2_pace_per_second",
			"Pace of requests to EC2, of actions that EC2 throttled.", []string{"request"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (q *queueCollector) Describe(to chan<- *prometheus.Desc) {
	to <- q.waiting
	to <- q.rate
}

// Collect implements prometheus.Collector.
func (q *queueCollector) Collect(to chan<- prometheus.Metric) {
	q.pace.mu.Lock()
	defer q.pace.mu.Unlock()
	for action, a := range q.pace.actions {
		to <- prometheus.MustNewConstMetric(q.waiting, prometheus.GaugeValue, float64(len(a.waiting)), action)
		if a.paced {
			to <- prometheus.MustNewConstMetric(q.rate, prometheus.GaugeValue, a.current(), action)
		}
	}
}
