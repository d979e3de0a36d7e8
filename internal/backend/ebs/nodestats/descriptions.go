package nodestats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// prefix and the names below are those of the reference driver, so that
// dashboards keep working.
const prefix = "aws_ebs_csi_"

// number is a counter or gauge of a volume.
type number struct {
	*prometheus.Desc
	kind prometheus.ValueType
	of   func(Page) float64
}

// histogram is one of a volume. Its sum is the time of all operations.
type histogram struct {
	*prometheus.Desc
	of func(Page) (bins []Bin, sum time.Duration)
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, []string{"instance_id", "volume_id"}, nil)
}

func numbers() []number {
	count := func(name, help string, of func(Page) uint64) number {
		return number{describe(name, help), prometheus.CounterValue, func(p Page) float64 { return float64(of(p)) }}
	}
	seconds := func(name, help string, of func(Page) time.Duration) number {
		return number{describe(name, help), prometheus.CounterValue, func(p Page) float64 { return of(p).Seconds() }}
	}
	return []number{
		count("read_ops_total", "Read operations that are done.", func(p Page) uint64 { return p.ReadOperations }),
		count("write_ops_total", "Write operations that are done.", func(p Page) uint64 { return p.WriteOperations }),
		count("read_bytes_total", "Bytes read.", func(p Page) uint64 { return p.ReadBytes }),
		count("write_bytes_total", "Bytes written.", func(p Page) uint64 { return p.WriteBytes }),
		seconds("read_seconds_total", "Time that read operations took, in all.", func(p Page) time.Duration { return p.ReadTime }),
		seconds("write_seconds_total", "Time that write operations took, in all.", func(p Page) time.Duration { return p.WriteTime }),
		seconds("exceeded_iops_seconds_total", "Time in which more IOPS were asked of the volume than it has.", func(p Page) time.Duration { return p.VolumeIOPSExceeded }),
		seconds("exceeded_tp_seconds_total", "Time in which more throughput was asked of the volume than it has.", func(p Page) time.Duration { return p.VolumeThroughputExceeded }),
		seconds("ec2_exceeded_iops_seconds_total", "Time in which more IOPS were asked of the instance than it has for EBS.", func(p Page) time.Duration { return p.InstanceIOPSExceeded }),
		seconds("ec2_exceeded_tp_seconds_total", "Time in which more throughput was asked of the instance than it has for EBS.", func(p Page) time.Duration { return p.InstanceThroughputExceeded }),
		{describe("volume_queue_length", "Operations that are not done yet."), prometheus.GaugeValue, func(p Page) float64 { return float64(p.QueueLength) }},
	}
}

func histograms() []histogram {
	return []histogram{
		{describe("read_io_latency_seconds", "How long read operations took."), func(p Page) ([]Bin, time.Duration) { return p.ReadLatency, p.ReadTime }},
		{describe("write_io_latency_seconds", "How long write operations took."), func(p Page) ([]Bin, time.Duration) { return p.WriteLatency, p.WriteTime }},
	}
}

// buckets are a histogram as Prometheus has it: each counts what is below its
// bound, the bins before included.
func buckets(bins []Bin) (count uint64, below map[float64]uint64) {
	below = make(map[float64]uint64, len(bins))
	for _, bin := range bins {
		count += bin.Count
		if bin.Below != Unbounded {
			below[bin.Below.Seconds()] = count
		}
	}
	return count, below
}

// self are the metrics of the collector.
type self struct {
	scrapes, errors prometheus.Counter
	duration        prometheus.Histogram
}

func newSelf() self {
	return self{
		scrapes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "nvme_collector_scrapes_total", Help: "How often the statistics of volumes were asked for.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "nvme_collector_errors_total", Help: "How often a volume, or what is needed to find it, did not answer.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "nvme_collector_duration_seconds", Help: "How long it took to ask all volumes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
}

func (s self) all() []prometheus.Collector {
	return []prometheus.Collector{s.scrapes, s.errors, s.duration}
}
