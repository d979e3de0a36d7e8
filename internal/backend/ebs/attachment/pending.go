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
	// unseen is for how long a detachment is told of after it was last seen: when
	// nobody asks for it any more, nobody sees its end.
	unseen = remembered
)

// Pending tells, as a metric, of detachments that take long. It is made for a
// registry by Machine.Pending.
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

// note takes a detachment to be under way.
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

// over takes a detachment to be done, or undone.
func (p *Pending) over(of pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, of)
}

// sweep forgets what nobody has seen for long.
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
