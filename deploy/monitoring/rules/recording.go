package rules

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
)

const rateWindow = 5 * time.Minute

// Quantile is the q-quantile of a histogram over a window, by labels, of native
// buckets and of classic ones: a Prometheus stores either, as its configuration
// says.
func Quantile(q float64, histogram, selector, by, window string) string {
	return fmt.Sprintf(
		"histogram_quantile(%g, sum by (%s, le) (rate(%s_bucket%s[%s]))) or histogram_quantile(%g, sum by (%s) (rate(%s%s[%s])))",
		q, by, histogram, selector, window, q, by, histogram, selector, window)
}

// recording are the expressions that dashboards and alerts share, and those that cost
// much: they are evaluated once.
func recording(clock Clock) []rulefmt.Rule {
	window := clock.window(rateWindow)
	return []rulefmt.Rule{
		{Record: "holdfast:pool_available:ratio", Expr: "holdfast_pool_available_bytes / (holdfast_pool_size_bytes > 0)"},
		{Record: "holdfast:pool_inodes_free:ratio", Expr: "holdfast_pool_inodes_free / (holdfast_pool_inodes > 0)"},
		{
			Record: "holdfast:step_seconds:p99_rate5m",
			Expr:   Quantile(0.99, "holdfast_step_seconds", "", "job, instance, driver_name, step", window),
		},
		{
			Record: "holdfast:rpc_seconds:p99_rate5m",
			Expr:   Quantile(0.99, "holdfast_rpc_seconds", "", "job, instance, method", window),
		},
	}
}
