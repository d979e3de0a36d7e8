package cloud

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// instruments have the names and labels of the AWS EBS CSI driver, so that dashboards and
// alerts for it keep working. Those of the queue have names of Holdfast.
type instruments struct {
	registerer prometheus.Registerer
	duration   *prometheus.HistogramVec
	errors     *prometheus.CounterVec
	throttles  *prometheus.CounterVec
	retries    *prometheus.CounterVec
	inFlight   *prometheus.GaugeVec
	waited     *prometheus.HistogramVec
	queue      *queueCollector
	codes      errorCodes
}

func newMetrics(registerer prometheus.Registerer, pace *pacer) (*instruments, error) {
	m := &instruments{
		registerer: registerer,
		duration: metrics.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "aws_ebs_csi_api_request_duration_seconds",
			Help:    "Duration of successful requests to EC2, by action.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, "request"),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aws_ebs_csi_api_request_errors_total",
			Help: "Requests to EC2 that failed, by action and EC2's code, without throttled ones.",
		}, []string{"request", "code"}),
		throttles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aws_ebs_csi_api_request_throttles_total",
			Help: "Requests that EC2 throttled, by action.",
		}, []string{"operation_name"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_ec2_retries_total",
			Help: "Requests to EC2 that were repeated, by action and by what happened to the one before.",
		}, []string{"request", "reason"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_ec2_requests_in_flight",
			Help: "Requests to EC2 that were sent and have no answer yet, by action.",
		}, []string{"request"}),
		waited: metrics.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_ec2_queue_wait_seconds",
			Help:    "Time that requests to EC2 waited in the queue before they were sent, by action.",
			Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		}, "request"),
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

func (m *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.errors, m.throttles, m.retries, m.inFlight, m.waited, m.queue}
}

func (m *instruments) close() {
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
		c.metrics.errors.WithLabelValues(action, c.metrics.codes.label(failed.Code)).Inc()
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

// mostCodes bounds the error codes that are labels; EC2's documentation has about 400, of
// which a driver of EBS sees a dozen.
const mostCodes = 50

// codeForm is that of EC2's codes, such as InvalidVolume.NotFound.
var codeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._]{0,63}$`)

// errorCodes are the codes that were seen.
type errorCodes struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label is the label of a code: of no answer unreachable, of what is not EC2's, or one too
// many, other. An endpoint that invents codes makes no more series than that.
func (e *errorCodes) label(code string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case code == "":
		return "unreachable"
	case e.seen[code]:
		return code
	case len(e.seen) >= mostCodes || !codeForm.MatchString(code):
		return "other"
	case e.seen == nil:
		e.seen = map[string]bool{}
	}
	e.seen[code] = true
	return code
}

// queueCollector reports the number of calls in the queue, and the pace.
type queueCollector struct {
	pace                  *pacer
	waiting, oldest, rate *prometheus.Desc
}

func newQueueCollector(pace *pacer) *queueCollector {
	return &queueCollector{
		pace: pace,
		waiting: prometheus.NewDesc("holdfast_ec2_queue_length", "Requests to EC2 that wait in the queue, by action.",
			[]string{"request"}, nil),
		oldest: prometheus.NewDesc("holdfast_ec2_queue_oldest_seconds",
			"Time that the request has waited which has waited in the queue for the longest time, by action; 0 if none waits.",
			[]string{"request"}, nil),
		rate: prometheus.NewDesc("holdfast_ec2_pace_per_second",
			"Pace of requests to EC2, of actions that EC2 throttled.", []string{"request"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (q *queueCollector) Describe(to chan<- *prometheus.Desc) {
	to <- q.waiting
	to <- q.oldest
	to <- q.rate
}

// Collect implements prometheus.Collector.
func (q *queueCollector) Collect(to chan<- prometheus.Metric) {
	q.pace.mu.Lock()
	defer q.pace.mu.Unlock()
	for action, a := range q.pace.actions {
		to <- prometheus.MustNewConstMetric(q.waiting, prometheus.GaugeValue, float64(len(a.waiting)), action)
		to <- prometheus.MustNewConstMetric(q.oldest, prometheus.GaugeValue, a.oldest(time.Now()).Seconds(), action)
		if a.paced {
			to <- prometheus.MustNewConstMetric(q.rate, prometheus.GaugeValue, a.current(), action)
		}
	}
}

// oldest returns for how long the call has waited that has waited for the longest time.
func (a *pace) oldest(now time.Time) (longest time.Duration) {
	for _, t := range a.waiting {
		longest = max(longest, now.Sub(t.came))
	}
	return longest
}

// repeated records that a request is sent again, after one with this outcome.
func (m *instruments) repeated(action string, kind outcome) {
	m.retries.WithLabelValues(action, kind.String()).Inc()
}

// String names an outcome in metrics.
func (o outcome) String() string {
	return [...]string{"answered", "throttled", "not_sent", "lost_answer", "stale_credentials"}[o]
}
