// Package dashboards is the one home of Holdfast's Grafana dashboards. The files for
// import and the chart's ConfigMaps are made from it.
package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// tag marks the dashboards, which link to each other by it.
const tag = "holdfast"

// Dashboard is one dashboard and the name of its file, without ".json".
type Dashboard struct {
	Name  string
	Model dashboard.Dashboard
}

// page is the description of a dashboard.
type page struct {
	name, title, description string
	variables                []cog.Builder[dashboard.VariableModel]
	rows                     []row
}

type row struct {
	title  string
	panels []panel
}

// All returns the dashboards in the order of the menu.
func All() ([]Dashboard, error) {
	var all []Dashboard
	for _, p := range []page{cluster(), node(), volume(), host(), ebs()} {
		model, err := p.build()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", p.name, err)
		}
		all = append(all, Dashboard{Name: p.name, Model: model})
	}
	return all, nil
}

// JSON is the file that Grafana imports.
func (d Dashboard) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(d.Model, "", " ")
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.Name, err)
	}
	return append(text, '\n'), nil
}

func (p page) build() (dashboard.Dashboard, error) {
	builder := dashboard.NewDashboardBuilder(p.title).Uid(p.name).Description(p.description).
		Tags([]string{tag}).Time("now-6h", "now").Refresh("30s").Readonly().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Holdfast").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).AsDropdown(true).KeepTime(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	for _, v := range p.variables {
		builder.WithVariable(v)
	}
	for _, r := range p.rows {
		builder.WithRow(dashboard.NewRowBuilder(r.title))
		for i, width := range spans(len(r.panels)) {
			builder.WithPanel(r.panels[i].build(width))
		}
	}
	return builder.Build()
}

// spans divides the 24 columns of the grid among the panels of a row: at most four
// in a line, and each line filled.
func spans(panels int) []uint32 {
	var widths []uint32
	for panels > 0 {
		line := min(panels, 4)
		if panels > 4 && panels < 8 {
			line = (panels + 1) / 2
		}
		for range line {
			widths = append(widths, uint32(24/line))
		}
		panels -= line
	}
	return widths
}

// source is the data source that the variable of that name selects.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

// choice is a variable with the values of a label.
func choice(name, label, metric, key string, many bool) cog.Builder[dashboard.VariableModel] {
	query := fmt.Sprintf("label_values(%s, %s)", metric, key)
	variable := dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).
		Query(dashboard.StringOrMap{String: &query}).Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
	if many {
		variable.Multi(true).IncludeAll(true).AllValue(".*").
			Current(dashboard.VariableOption{
				Text:  dashboard.StringOrArrayOfString{String: cog.ToPtr("All")},
				Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")},
			})
	}
	return variable
}

// Queries are the expressions of all panels, in their order.
func (d Dashboard) Queries() (expressions []string) {
	for _, p := range d.Model.Panels {
		if p.Panel == nil {
			continue
		}
		for _, target := range p.Panel.Targets {
			if query, ok := target.(prometheus.Dataquery); ok {
				expressions = append(expressions, query.Expr)
			}
		}
	}
	return expressions
}
