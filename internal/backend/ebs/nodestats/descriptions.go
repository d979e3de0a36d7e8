package nodestats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// prefix and the names below are those of the AWS EBS CSI driver, so that dashboards keep
// working.
const prefix = "aws_ebs_csi_"

// number is a counter or gauge of a volume.
type number struct {
	*prometheus.Desc
	kind prometheus.ValueType
	of   func(Page) float64
}

// histogram is a histogram of a volume. Its sum is the time of all operations.
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
		count("read_ops_total", "Completed read operations.", func(p Page) uint64 { return p.ReadOperations }),
		count("write_ops_total", "Completed write operations.", func(p Page) uint64 { return p.WriteOperations }),
		count("read_bytes_total", "Bytes read.", func(p Page) uint64 { return p.ReadBytes }),
		count("write_bytes_total", "Bytes written.", func(p Page) uint64 { return p.WriteBytes }),
		seconds("read_seconds_total", "Total time of read operations.",
			func(p Page) time.Duration { return p.ReadTime }),
		seconds("write_seconds_total", "Total time of write operations.",
			func(p Page) time.Duration { return p.WriteTime }),
		seconds("exceeded_iops_seconds_total", "Time in which the demand exceeded the IOPS of the volume.",
			func(p Page) time.Duration { return p.VolumeIOPSExceeded }),
		seconds("exceeded_tp_seconds_total", "Time in which the demand exceeded the throughput of the volume.",
			func(p Page) time.Duration { return p.VolumeThroughputExceeded }),
		seconds("ec2_exceeded_iops_seconds_total", "Time in which the demand exceeded the instance's IOPS for EBS.",
			func(p Page) time.Duration { return p.InstanceIOPSExceeded }),
		seconds("ec2_exceeded_tp_seconds_total", "Time in which the demand exceeded the instance's throughput for EBS.",
			func(p Page) time.Duration { return p.InstanceThroughputExceeded }),
		{describe("volume_queue_length", "Operations that are under way."), prometheus.GaugeValue,
			func(p Page) float64 { return float64(p.QueueLength) }},
	}
}

func histograms() []histogram {
	return []histogram{
		{describe("read_io_latency_seconds", "Latency of read operations."),
			func(p Page) ([]Bin, time.Duration) { return p.ReadLatency, p.ReadTime }},
		{describe("write_io_latency_seconds", "Latency of write operations."),
			func(p Page) ([]Bin, time.Duration) { return p.WriteLatency, p.WriteTime }},
	}
}

// buckets converts bins to the buckets of Prometheus, which are cumulative.
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
			Name: prefix + "nvme_collector_scrapes_total", Help: "Scrapes of the statistics of volumes.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "nvme_collector_errors_total", Help: "Volumes that did not answer, and searches for the volumes that failed.",
		}),
		duration: metrics.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "nvme_collector_duration_seconds", Help: "Duration of a scrape of all volumes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
}

func (s self) all() []prometheus.Collector {
	return []prometheus.Collector{s.scrapes, s.errors, s.duration}
}
