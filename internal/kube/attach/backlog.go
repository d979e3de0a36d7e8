package attach

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// The operations in the metrics.
const (
	attachOperation = metrics.KindAttach
	detachOperation = metrics.KindDetach
)

// backlog counts the attachments that wait to be attached or detached. It counts
// the objects at each scrape, so it is right after a restart too, and while another
// process holds the lease (external-attacher issues 706 and 761).
type backlog struct {
	controller      *Controller
	pending, oldest *prometheus.Desc
}

func (c *Controller) registerMetrics() {
	if c.env.Registerer == nil {
		return
	}
	constant := prometheus.Labels{"driver_name": c.env.Driver}
	collector := &backlog{
		controller: c,
		pending: prometheus.NewDesc("holdfast_attachments_pending",
			"VolumeAttachments that wait to be attached or detached, failing ones included.", []string{"operation"}, constant),
		oldest: prometheus.NewDesc("holdfast_attachments_oldest_seconds",
			"Seconds since the oldest of those was created, or deleted.", []string{"operation"}, constant),
	}
	if err := c.env.Registerer.Register(collector); err != nil {
		c.env.Logger.Warn("the metrics of waiting VolumeAttachments are missing", "error", err)
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- b.pending
	descriptions <- b.oldest
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(metrics chan<- prometheus.Metric) {
	now := time.Now()
	count, age := map[string]int{}, map[string]time.Duration{}
	for _, va := range b.controller.attachments.List() {
		operation, since := b.controller.waits(va)
		if operation == "" {
			continue
		}
		count[operation]++
		age[operation] = max(age[operation], now.Sub(since))
	}
	for _, operation := range []string{attachOperation, detachOperation} {
		metrics <- prometheus.MustNewConstMetric(b.pending, prometheus.GaugeValue, float64(count[operation]), operation)
		metrics <- prometheus.MustNewConstMetric(b.oldest, prometheus.GaugeValue, age[operation].Seconds(), operation)
	}
}

// waits returns the operation that an attachment waits for and since when; "" if
// it waits for none.
func (c *Controller) waits(va *storagev1.VolumeAttachment) (operation string, since time.Time) {
	switch {
	case !c.owns(va):
	case va.DeletionTimestamp != nil && c.hasFinalizer(va):
		return detachOperation, va.DeletionTimestamp.Time
	case va.DeletionTimestamp == nil && !va.Status.Attached:
		return attachOperation, va.CreationTimestamp.Time
	}
	return "", time.Time{}
}

// operations returns the operation of an attachment, if it is of a kind. One that is
// published or unpublished again does not show since when.
func (c *Controller) operations(va *storagev1.VolumeAttachment, kind string) []cluster.Operation {
	operation, since := c.waits(va)
	if operation == "" && c.forced.is(va.UID) {
		if operation = attachOperation; va.DeletionTimestamp != nil {
			operation = detachOperation
		}
	}
	if operation != kind {
		return nil
	}
	return []cluster.Operation{{Kind: kind, Since: since}}
}
