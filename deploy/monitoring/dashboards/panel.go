package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units of Grafana.
const (
	number    = "short"
	bytes     = "bytes"
	byteRate  = "Bps"
	seconds   = "s"
	ratio     = "percentunit"
	perSecond = "ops"
)

// query is an expression and the legend of its series.
type query struct{ expr, legend string }

// panel is one panel: lines over time, or the present values as numbers.
type panel struct {
	title, description, unit string
	numbers                  bool
	// bad is the value from which a number is red; 0 colours nothing.
	bad     float64
	queries []query
}

// lines is a panel with the course of its queries.
func lines(title, unit, description string, queries ...query) panel {
	return panel{title: title, unit: unit, description: description, queries: queries}
}

// value is a panel with the present value of an expression.
func value(title, unit, description, expr, legend string) panel {
	return panel{title: title, unit: unit, description: description, numbers: true, queries: []query{{expr, legend}}}
}

// alarm is a number that is green at 0 and red from 1 on.
func alarm(title, description, expr, legend string) panel {
	p := value(title, number, description, expr, legend)
	p.bad = 1
	return p
}

func (p panel) build(width uint32) cog.Builder[dashboard.Panel] {
	if p.numbers {
		return p.stat(width)
	}
	builder := timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source()).
		Unit(p.unit).Span(width).Height(8).Min(0).FillOpacity(8).LineWidth(1).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, q := range p.queries {
		builder.WithTarget(q.build(i).Range())
	}
	return builder
}

func (p panel) stat(width uint32) cog.Builder[dashboard.Panel] {
	builder := stat.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source()).
		Unit(p.unit).Span(width).Height(5).GraphMode(common.BigValueGraphModeNone).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	if p.bad != 0 {
		builder.ColorMode(common.BigValueColorModeBackground).Thresholds(dashboard.NewThresholdsConfigBuilder().
			Mode(dashboard.ThresholdsModeAbsolute).
			Steps([]dashboard.Threshold{{Color: "green"}, {Color: "red", Value: &p.bad}}))
	} else {
		builder.ColorMode(common.BigValueColorModeNone)
	}
	for i, q := range p.queries {
		builder.WithTarget(q.build(i).Instant())
	}
	return builder
}

func (q query) build(index int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).
		RefId(string(rune('A' + index))).Datasource(source())
}

// rate is the rate of a counter, summed by labels.
func rate(counter, selector, by string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s%s[$__rate_interval]))", by, counter, selector)
}

// observations is the rate of a histogram's observations, of native buckets and of
// classic ones.
func observations(histogram, selector, by string) string {
	return rate(histogram+"_count", selector, by) +
		fmt.Sprintf(" or sum by (%s) (histogram_count(rate(%s%s[%s])))", by, histogram, selector, window)
}
