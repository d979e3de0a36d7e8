package nodestats

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Source reads the statistics of volumes. It must be safe for concurrent use.
type Source interface {
	// InstanceID is this instance's.
	InstanceID(ctx context.Context) (string, error)
	// Volumes returns the IDs of the volumes whose statistics are reported.
	Volumes() ([]string, error)
	// Statistics asks a volume. It may take as long as the disk does. ErrNotFound if the
	// volume was detached meanwhile.
	Statistics(volumeID string) (Page, error)
}

// Options of a Collector. A field with the zero value has its default.
type Options struct {
	Source Source // required
	// Bound is how long a scrape waits for all volumes; 2 s by default, well below the
	// default scrape timeout of Prometheus, 10 s.
	Bound time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

const (
	defaultBound = 2 * time.Second
	// fresh is how long an answer serves further scrapes. Volumes update their counters
	// every second.
	fresh = time.Second
	// atOnce is how many disks are asked at the same time. Each needs a thread, which a
	// hung disk blocks until it answers.
	atOnce = 8
)

// Collector asks the volumes of this instance at each scrape of the metrics. The page
// lacks a volume that does not answer within the bound. The collector does not ask it
// again until it has answered.
type Collector struct {
	options    Options
	numbers    []number
	histograms []histogram
	self       self
	slots      chan struct{} // has a value for each disk that is being asked

	mu      sync.Mutex
	latest  *scrape // the last one that began
	whole   state   // of the search for the volumes
	volumes map[string]*state
}

// scrape is one poll of all volumes.
type scrape struct {
	done     chan struct{} // closed when the rest is set
	ended    time.Time     // guarded by Collector.mu; zero while it runs
	instance string
	pages    map[string]Page // by volume ID
}

// New makes a Collector. The caller registers it.
func New(o Options) *Collector {
	o.Bound = cmp.Or(o.Bound, defaultBound)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Collector{
		options: o, numbers: numbers(), histograms: histograms(), self: newSelf(),
		slots: make(chan struct{}, atOnce), volumes: map[string]*state{},
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, n := range c.numbers {
		to <- n.Desc
	}
	for _, h := range c.histograms {
		to <- h.Desc
	}
	for _, s := range c.self.all() {
		s.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.self.scrapes.Inc()
	s := c.scrape()
	<-s.done
	for id, page := range s.pages {
		for _, n := range c.numbers {
			to <- prometheus.MustNewConstMetric(n.Desc, n.kind, n.of(page), s.instance, id)
		}
		for _, h := range c.histograms {
			bins, sum := h.of(page)
			count, below := buckets(bins)
			to <- prometheus.MustNewConstHistogram(h.Desc, count, sum.Seconds(), below, s.instance, id)
		}
	}
	for _, metric := range c.self.all() {
		metric.Collect(to)
	}
}

// scrape returns the running scrape or a fresh one; without either it begins one.
func (c *Collector) scrape() *scrape {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.latest; s != nil && (s.ended.IsZero() || time.Since(s.ended) < fresh) {
		return s
	}
	c.latest = &scrape{done: make(chan struct{})}
	go c.run(c.latest)
	return c.latest
}

func (c *Collector) run(s *scrape) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Bound)
	defer cancel()
	instance, ids, err := c.find(ctx)
	c.noteWhole(err)
	if err == nil {
		s.instance, s.pages = instance, c.ask(ctx, ids)
	}
	c.self.duration.Observe(time.Since(began).Seconds())
	c.mu.Lock()
	s.ended = time.Now()
	c.mu.Unlock()
	close(s.done)
}

// find returns the instance and the volumes to ask.
func (c *Collector) find(ctx context.Context) (instance string, ids []string, err error) {
	if instance, err = c.options.Source.InstanceID(ctx); err != nil {
		return "", nil, err
	}
	ids, err = c.options.Source.Volumes()
	return instance, ids, err
}

// answer is the answer of a volume.
type answer struct {
	id   string
	page Page
	err  error
}

// ask asks all volumes at once, and waits for the answers.
func (c *Collector) ask(ctx context.Context, ids []string) map[string]Page {
	answers := make(chan answer, len(ids)) // late answers do not block
	waiting := map[string]bool{}
	for _, id := range c.begin(ids) {
		waiting[id] = true
		go c.askOne(ctx, id, answers)
	}
	pages := map[string]Page{}
	for len(waiting) > 0 && ctx.Err() == nil {
		select {
		case a := <-answers:
			delete(waiting, a.id)
			if a.err == nil {
				pages[a.id] = a.page
			}
		case <-ctx.Done():
		}
	}
	for id := range waiting {
		c.note(id, fmt.Errorf("the disk does not answer within %v", c.options.Bound))
	}
	return pages
}

// askOne asks a disk as soon as a slot is free.
func (c *Collector) askOne(ctx context.Context, id string, answers chan<- answer) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		c.abandon(id)
		return
	}
	page, err := c.options.Source.Statistics(id)
	<-c.slots
	c.end(id, err)
	answers <- answer{id: id, page: page, err: err}
}
