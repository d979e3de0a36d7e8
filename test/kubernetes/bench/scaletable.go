package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// scaleCell is one measurement of one design, as text.
type scaleCell struct{ Work, Value, Aim string }

// scaleColumn is what was measured of one design.
type scaleColumn struct {
	Design string
	Load   string // load average before
	Cells  []scaleCell
}

// scaleResults are the columns of a table.
type scaleResults struct{ Columns []scaleColumn }

// readScaleResults reads what earlier runs have measured.
func readScaleResults(s settings) (r scaleResults, err error) {
	if s.results == "" {
		return r, nil
	}
	text, err := os.ReadFile(s.results)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

func (r *scaleResults) has(d design) bool {
	for _, column := range r.Columns {
		if column.Design == d.String() {
			return true
		}
	}
	return false
}

func (r *scaleResults) add(d design, load string, cells []scaleCell) {
	r.Columns = append(r.Columns, scaleColumn{Design: d.String(), Load: load, Cells: cells})
}

// write writes the results to their file, and the table to the page.
func (r *scaleResults) write(s settings, page string) error {
	if s.results != "" {
		text, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.results, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if page == "" {
		return nil
	}
	machine, err := machine()
	if err != nil {
		return err
	}
	conditions := fmt.Sprintf("%d claims; %s. The load average before each column: %s.", s.claims, machine, r.loads())
	if len(s.alternatives) > 0 {
		conditions += fmt.Sprintf(" %s is %s.", s.alternative, s.commands())
	}
	title := fmt.Sprintf("**%d volumes**", s.objects)
	return replaceReport(page, fmt.Sprintf("make bench-scale, %d volumes", s.objects), conditions+"\n\n"+title+"\n\n"+r.table(s))
}

func (r *scaleResults) loads() string {
	loads := make([]string, len(r.Columns))
	for i, column := range r.Columns {
		loads[i] = column.Load
	}
	return strings.Join(loads, ", ")
}

// table renders the columns of the designs of this run, in the order of the designs.
func (r *scaleResults) table(s settings) string {
	var columns []scaleColumn
	header, line := "| Work |", "| --- |"
	for _, d := range s.designs() {
		for _, column := range r.Columns {
			if column.Design == d.String() {
				columns = append(columns, column)
				header, line = header+" "+column.Design+" |", line+" --- |"
			}
		}
	}
	if len(columns) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString(header + " Aim |\n" + line + " --- |\n")
	for i, first := range columns[0].Cells {
		text.WriteString("| " + first.Work + " |")
		for _, column := range columns {
			text.WriteString(" " + column.Cells[i].Value + " |")
		}
		text.WriteString(" " + first.Aim + " |\n")
	}
	return text.String()
}

// leaderAim is the aim for the process that coordinates the nodes, in MiB: 190 at 10,000
// objects of each kind and 1,229 at 100,000.
func leaderAim(objects int) int {
	return 190 + (1229-190)*max(0, objects-10_000)/90_000
}

// scaleCells are the rows of one design. All designs have the same.
func scaleCells(s settings, d design, r scaleResult) []scaleCell {
	leader, labels := "-", "-"
	if d.coordinated() {
		leader = r.leader.memory()
		labels = seconds(r.labels.took)
	}
	perNode := r.restart.sent / int64(d.nodes)
	cells := []scaleCell{
		{"memory of one node's process", r.node.memory(), "≤ 45 MiB"},
		{"memory of the process that coordinates the nodes", leader, fmt.Sprintf("≤ %d MiB", leaderAim(s.objects))},
		{"memory of the API server before", mebibytes(r.alone), "-"},
		{"— with the processes of all nodes", mebibytes(r.serving), "-"},
		{fmt.Sprintf("labels on the objects of %d volumes, once", s.unlabelled), labels, "-"},
		{"restart of all nodes, until their caches are filled", seconds(r.restart.took), "-"},
		{"— restart: claims and volumes sent, for each that exists", times(r.restart.api.volumes, 2*s.objects), "1 to 2"},
		{"— restart: bytes sent", megabytes(r.restart.sent), "-"},
		{"— restart: bytes sent for each node", kilobytesOf(perNode), "-"},
		{"— restart: CPU of the API server", seconds(r.restart.api.cpu), "-"},
		{"— restart: CPU of the nodes", seconds(r.restart.cpu), "-"},
		{"idle, bytes sent in a second", kilobytesOf(int64(float64(r.idle.sent) / r.idle.took.Seconds())), "-"},
		{"idle, CPU of the API server in a second", milliseconds(perSecondOf(r.idle.api.cpu, r.idle.took)), "-"},
	}
	for _, phase := range []struct {
		work, each string
		scalePhase
	}{
		{fmt.Sprintf("%d claims to Bound", s.claims), "a claim to Bound", r.bound},
		{fmt.Sprintf("%d claims deleted, to the end of their volumes", s.claims), "a deletion", r.deleted},
	} {
		const aim = "independent of the nodes"
		claims := time.Duration(s.claims)
		cells = append(cells,
			scaleCell{phase.work, seconds(phase.took), "-"},
			scaleCell{"— " + phase.each + ": events to all watchers", fmt.Sprintf("%.1f", phase.api.events/float64(s.claims)), aim},
			scaleCell{"— " + phase.each + ": bytes to the nodes", kilobytesOf(phase.sent / int64(s.claims)), aim},
			scaleCell{"— " + phase.each + ": CPU of the API server", milliseconds(phase.api.cpu / claims), "-"},
			scaleCell{"— " + phase.each + ": CPU of the nodes", milliseconds(phase.cpu / claims), "-"},
		)
	}
	return cells
}

func kilobytesOf(bytes int64) string { return fmt.Sprintf("%.1f KB", float64(bytes)/1e3) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1e3)
}

func times(n float64, of int) string { return fmt.Sprintf("%.2f", n/float64(of)) }

func perSecondOf(part, whole time.Duration) time.Duration {
	return time.Duration(float64(part) / whole.Seconds())
}
