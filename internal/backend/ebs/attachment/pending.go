package attachment

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// slow is how long a detachment takes before the metrics name it: a series
	// for each would be one for every volume that ever moved.
	slow = time.Minute
	// unseen is how long a detachment is reported after it was last observed: without
	// a call for it, its end is not observed.
	unseen = remembered
)

// Pending is the metric of detachments that take long. Machine.Pending returns it for
// a registry.
type Pending struct {
	seconds *prometheus.Desc

	mu   sync.Mutex
	seen map[pair]sighting
}

// sighting is a detachment that is under way.
type sighting struct {
	since, last time.Time
	state       string // of the attachment, as EC2 has it
}

func newPending() *Pending {
	return &Pending{
		seconds: prometheus.NewDesc("aws_ebs_csi_ec2_detach_pending_seconds_total",
			"For how long a volume has been detaching from an instance, of those that have for more than a minute.",
			[]string{"volume_id", "instance_id", "attachment_state"}, nil),
		seen: map[pair]sighting{},
	}
}

// Pending are the Machine's.
func (m *Machine) Pending() *Pending { return m.pending }

// note records that a detachment is under way.
func (p *Pending) note(of pair, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s, known := p.seen[of]
	if !known || now.Sub(s.last) >= unseen {
		s.since = now
	}
	s.last, s.state = now, state
	p.seen[of] = s
}

// done removes a detachment that has ended, or that was undone.
func (p *Pending) done(of pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, of)
}

// sweep removes detachments that were not observed for long.
func (p *Pending) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for of, s := range p.seen {
		if now.Sub(s.last) >= unseen {
			delete(p.seen, of)
		}
	}
}

// Describe implements prometheus.Collector.
func (p *Pending) Describe(to chan<- *prometheus.Desc) { to <- p.seconds }

// Collect implements prometheus.Collector.
func (p *Pending) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	p.sweep(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	for of, s := range p.seen {
		if long := now.Sub(s.since); long >= slow {
			to <- prometheus.MustNewConstMetric(p.seconds, prometheus.CounterValue, long.Seconds(), of.volume, of.instance, s.state)
		}
	}
}
