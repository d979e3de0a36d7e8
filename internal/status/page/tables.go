package page

import (
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	. "maragu.dev/gomponents/html" //nolint:staticcheck // as in shell.go

	"github.com/holdfast-csi/holdfast/internal/status"
)

// table is a table of objects.
type table struct {
	id, headline string
	// columns are those of the cells, after name and status and before the age.
	columns []string
	rows    []status.Row
	none    string
}

// part is the table with a row for each object. The number of rows is a row of its own.
func (t table) part(now time.Time) part {
	p := part{id: t.id, body: t.id + "-rows", frame: t.frame}
	for _, row := range t.rows {
		p.rows = append(p.rows, part{id: rowID(row.Ref), node: rowNode(row, now)})
	}
	if len(t.rows) == 0 {
		id := t.id + "-none"
		p.rows = []part{{id: id, node: Tr(ID(id), Class("none"), Td(ColSpan(strconv.Itoa(len(t.columns)+3)), g.Text(t.none)))}}
	}
	return p
}

func rowID(ref status.Ref) string { return strings.TrimPrefix(href(ref), Prefix) }

func (t table) frame(rows g.Node) g.Node {
	columns := append(append([]string{"Name", "Status"}, t.columns...), "Age")
	return section(t.id, t.headline,
		Div(Class("scroll"), TabIndex("0"), Role("region"), Aria("labelledby", t.id+"-head"),
			Table(Data("filter", t.headline), THead(heads(columns...)), TBody(ID(t.id+"-rows"), rows))))
}

func rowNode(row status.Row, now time.Time) g.Node {
	text := row.Status
	if row.Running != nil {
		text += ": " + row.Running.Step
		if progress := row.Running.Progress; progress != nil {
			text += ", " + progress.String()
		}
	}
	return Tr(ID(rowID(row.Ref)),
		Th(Scope("row"), link(row.Ref)), Td(badge(row.Level, text)),
		g.Map(row.Cells, cellNode),
		Td(Class("number"), g.Text(ageText(row.Created, now))),
	)
}

func cellNode(cell status.Cell) g.Node {
	const most = 3
	shown := cell.Links[:min(most, len(cell.Links))]
	return Td(g.Text(cell.Text), g.Group(between(", ", g.Map(shown, link))),
		g.If(len(cell.Links) > most, g.Textf(" and %d more", len(cell.Links)-most)))
}

// between puts a text between nodes.
func between(text string, nodes g.Group) (all g.Group) {
	for i, node := range nodes {
		if i > 0 {
			all = append(all, g.Text(text))
		}
		all = append(all, node)
	}
	return all
}

func tables(title string, view status.View, all ...table) screen {
	now := time.Now()
	s := screen{title: title, every: everyMinute, parts: []part{
		{id: "head", node: H1(ID("head"), g.Text(title))}, problems(view.Problems()),
	}}
	for _, t := range all {
		s.parts = append(s.parts, t.part(now))
	}
	return s
}

func claimsTable(rows []status.Row) table {
	return table{id: "claims", headline: "Claims", rows: rows, none: "There is no claim.",
		columns: []string{"Size", "Class", "Volume", "Used by", "Driver"}}
}

func volumesScreen(view status.View) screen {
	return tables("Volumes", view, claimsTable(view.Claims()),
		table{id: "unbound", headline: "Volumes without a claim", rows: view.Volumes(), none: "There is none.",
			columns: []string{"Size", "Class", "Claim", "Driver"}})
}

func podsScreen(view status.View) screen {
	return tables("Pods", view, table{id: "pods", headline: "Pods", rows: view.Pods(), none: "There is no pod.",
		columns: []string{"Ready", "Restarts", "Claims", "Node"}})
}

func snapshotsScreen(view status.View) screen {
	return tables("Snapshots", view, table{id: "snapshots", headline: "Snapshots", rows: view.Snapshots(),
		none: "There is no snapshot.", columns: []string{"Size", "Source", "Class", "Driver"}})
}

func driversScreen(view status.View) screen {
	s := screen{title: "Drivers", every: everyMinute}
	s.parts = []part{
		{id: "head", node: H1(ID("head"), g.Text("Drivers"))}, problems(view.Problems()),
		{id: "drivers", node: driversNode(view.Drivers(), view, time.Now())}, {id: "pools", node: poolsNode(view.Pools())},
	}
	return s
}

// driverScreen is a driver with its claims.
func driverScreen(view status.View, name string) screen {
	driver, claims, ok := view.Plugin(name)
	s := screen{title: "Driver " + name, every: everyMinute, missing: !ok && len(claims) == 0}
	level, text := status.Bad, "not known"
	switch {
	case driver.Healthy:
		level, text = status.Good, driver.State
	case ok:
		text = driver.State
	}
	facts := driver.Facts
	if driver.Error != "" {
		facts = append([]status.Fact{{Label: "Error", Value: driver.Error}}, facts...)
	}
	s.parts = []part{
		{id: "head", node: headNode("Driver", name, level, text)}, problems(view.Problems()),
		{id: "facts", node: factsNode(facts)}, claimsTable(claims).part(time.Now()),
	}
	return s
}
