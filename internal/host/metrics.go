package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/step"
)

// newSteps registers the histogram of the host's steps; nil without a registerer.
func newSteps(registerer prometheus.Registerer) (*step.Recorder, error) {
	if registerer == nil {
		return nil, nil
	}
	return step.NewRecorder(registerer, "holdfast_host_step_seconds",
		"Time that the host's steps took, as its journal names them, by driver and outcome (ok, retry, failed, canceled).")
}

// measureStep records the end of an attempt of a step.
func (h *Host) measureStep(event volumes.Event) {
	if h.steps == nil || event.Status == volumes.Started {
		return
	}
	outcome := step.Failed
	switch {
	case event.Status == volumes.Done:
		outcome = step.OK
	case errors.Is(event.Err, context.Canceled):
		outcome = step.Canceled
	case event.Status == volumes.Retrying:
		outcome = step.Retry
	}
	h.steps.Observe(event.Driver, string(event.Step), outcome, event.Took)
}

// registerMetrics exports the state of the host: its objects, drivers and queues. The
// controllers exist.
func (h *Host) registerMetrics() error {
	registerer := h.options.Registerer
	if registerer == nil {
		return nil
	}
	operations, err := metrics.OperationsOf(registerer)
	if err != nil {
		return fmt.Errorf("metrics of the host's operations: %w", err)
	}
	h.unfinished = newUnfinished(h.set, h.volumes, h.options.Logger)
	operations.WatchDrivers(h.driverNames, metrics.HostKinds(), h.unfinished.view)
	h.objects = newObjectMetrics(h.store)
	if limit := h.options.MetricsVolumes; limit > 0 {
		h.infos = newVolumeInfos(h.volumes)
		names := metrics.NewVolumeInfos(limit, func() []metrics.VolumeInfo { return h.infos.Get(time.Second).Value })
		if err := registerer.Register(names); err != nil {
			return fmt.Errorf("metrics of volumes: %w", err)
		}
	}
	for _, collector := range []prometheus.Collector{newQueueMetrics(h.set), newDriverMetrics(h.Drivers), h.objects} {
		if err := registerer.Register(collector); err != nil {
			return fmt.Errorf("metrics of the host: %w", err)
		}
	}
	return nil
}

// queueMetrics are those of the queues, under the names that they have in a cluster.
type queueMetrics struct {
	set                                       *reconcile.Set
	depth, adds, unfinished, longest, waiting *prometheus.Desc
}

func newQueueMetrics(set *reconcile.Set) *queueMetrics {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, []string{"name"}, nil) }
	return &queueMetrics{
		set:        set,
		depth:      desc("workqueue_depth", "Keys that wait for a worker."),
		adds:       desc("workqueue_adds_total", "Keys that were added."),
		unfinished: desc("workqueue_unfinished_work_seconds", "Seconds of work in progress, summed over the workers."),
		longest:    desc("workqueue_longest_running_processor_seconds", "Seconds that the longest work in progress has taken so far."),
		waiting:    desc("holdfast_workqueue_oldest_seconds", "Age of the oldest key that waits for a worker."),
	}
}

// Describe implements prometheus.Collector.
func (q *queueMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{q.depth, q.adds, q.unfinished, q.longest, q.waiting} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (q *queueMetrics) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	for _, queue := range q.set.Queues() {
		var depth int
		var unfinished, longest, waiting time.Duration
		queue.Work(func(work reconcile.Work) {
			if work.Due {
				depth++
				waiting = max(waiting, now.Sub(work.DueSince)) // not from its first failure on
			}
			if work.Running {
				unfinished += now.Sub(work.Since)
				longest = max(longest, now.Sub(work.Since))
			}
		})
		gauge := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, queue.Name())
		}
		gauge(q.depth, float64(depth))
		gauge(q.unfinished, unfinished.Seconds())
		gauge(q.longest, longest.Seconds())
		gauge(q.waiting, waiting.Seconds())
		to <- prometheus.MustNewConstMetric(q.adds, prometheus.CounterValue, float64(queue.Added()), queue.Name())
	}
}

// closeMetrics returns when the store is not read for a scrape any more.
func (h *Host) closeMetrics() error {
	if h.objects == nil {
		return nil
	}
	ended := errors.Join(h.objects.counts.Close(context.Background()), h.unfinished.operations.Close(context.Background()))
	if h.infos != nil {
		ended = errors.Join(ended, h.infos.Close(context.Background()))
	}
	return ended
}

// objectCounts are the objects by what users want to know of them.
type objectCounts struct{ claims, pods, snapshots map[string]int }

// objectMetrics count the objects of the store in the background.
type objectMetrics struct {
	counts                  concurrency.Background[objectCounts]
	claims, pods, snapshots *prometheus.Desc
}
