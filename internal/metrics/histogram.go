// Package metrics has what all of Holdfast's metrics share: the shape of their
// histograms.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Native buckets grow by 10 %, which is the error of a quantile. A histogram that would
// need more buckets than the maximum is reset, or gets wider ones if it was reset lately.
const (
	nativeFactor   = 1.1
	nativeBuckets  = 160
	nativeMinReset = time.Hour
)

// NewHistogram returns a histogram with the classic buckets of the options, or else the
// default ones, for servers that scrape text, and native ones, for those that ask for them.
func NewHistogram(options prometheus.HistogramOpts) prometheus.Histogram {
	return prometheus.NewHistogram(withNative(options))
}

// NewHistogramVec is NewHistogram with labels.
func NewHistogramVec(options prometheus.HistogramOpts, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(withNative(options), labels)
}

func withNative(options prometheus.HistogramOpts) prometheus.HistogramOpts {
	if len(options.Buckets) == 0 {
		options.Buckets = prometheus.DefBuckets // which a histogram with native buckets would lack
	}
	options.NativeHistogramBucketFactor = nativeFactor
	options.NativeHistogramMaxBucketNumber = nativeBuckets
	options.NativeHistogramMinResetDuration = nativeMinReset
	return options
}
