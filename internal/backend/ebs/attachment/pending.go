package attachment

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	// slow is how long a detachment takes until the metrics report it. A series for
	// every detachment would be one for every volume that ever moved.
	slow = time.Minute
	// unseen is how long a detachment is reported after it was last observed. Without a
	// call for it, the driver does not observe its end.
	unseen = remembered
)

// Pending is the metric of detachments that take long. See Machine.Pending.
type Pending struct {
	seconds  *prometheus.Desc
	underWay concurrency.Expiring[pair, detachment]
}

// detachment is one that is under way.
type detachment struct {
	since time.Time
	state string // of the attachment, as EC2 has it
}

func newPending() *Pending {
	return &Pending{
		seconds: prometheus.NewDesc("aws_ebs_csi_ec2_detach_pending_seconds_total",
			"How long a volume has been detaching from an instance, if that is more than a minute.",
			[]string{"volume_id", "instance_id", "attachment_state"}, nil),
	}
}

// Pending returns the Machine's metric for a registry.
func (m *Machine) Pending() *Pending { return m.pending }

// note records that a detachment is under way.
func (p *Pending) note(of pair, state string) {
	p.underWay.Update(of, unseen, func(d detachment, ok bool) detachment {
		if !ok {
			d.since = time.Now()
		}
		d.state = state
		return d
	})
}

// done removes a detachment that has ended, or that was undone.
func (p *Pending) done(of pair) { p.underWay.Delete(of) }

// Describe implements prometheus.Collector.
func (p *Pending) Describe(to chan<- *prometheus.Desc) { to <- p.seconds }

// Collect implements prometheus.Collector.
func (p *Pending) Collect(to chan<- prometheus.Metric) {
	for of, d := range p.underWay.All() {
		if long := time.Since(d.since); long >= slow {
			to <- prometheus.MustNewConstMetric(p.seconds, prometheus.CounterValue, long.Seconds(), of.volume,
				of.instance, d.state)
		}
	}
}
