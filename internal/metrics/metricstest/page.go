// Package metricstest keeps docs/reference/metrics.md equal to the code. The test of each
// process builds its registry with the constructors of the command, and compares the
// metrics in it with the process's part of the page.
package metricstest

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// updateVariable makes Check write the page: HOLDFAST_UPDATE_METRICS=1 go test ./…
const updateVariable = "HOLDFAST_UPDATE_METRICS"

// Part is one part of the page: the metrics of a process or of a backend.
type Part struct {
	Name string // in the marks of the page
	Page string // the path of the page from the test's directory
	// Registries have the metrics. Those of the Go runtime and process are left out.
	Registries []*prometheus.Registry
	// Histograms and Gauges name metrics of times that have no value in the registry: a
	// metric without values does not show its type.
	Histograms, Gauges []string
	// Elsewhere are beginnings of names that another part has.
	Elsewhere []string
}

// row is one metric of the page.
type row struct {
	name, help string
	labels     []string
	kind       dto.MetricType
}

// Check compares a part of the page with its registry, and its metrics with the rules for
// names of Prometheus.
func Check(t *testing.T, part Part) {
	t.Helper()
	rows := part.rows(t)
	lint(t, rows)
	begin, end := "<!-- metrics: "+part.Name+" -->\n", "<!-- end -->\n"
	data, err := os.ReadFile(part.Page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	now, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s lacks the part %q", part.Page, strings.TrimSpace(begin))
	}
	want := table(rows)
	if now == want {
		return
	}
	if os.Getenv(updateVariable) == "" {
		t.Fatalf("%s: the part %s is not that of the code; write it with %s=1 (once for each part). Want:\n%s",
			part.Page, part.Name, updateVariable, want)
	}
	if err := os.WriteFile(part.Page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func table(rows map[string]row) string {
	var text strings.Builder
	text.WriteString("| Name | Type | Labels | What |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		labels := make([]string, len(r.labels))
		for i, label := range r.labels {
			labels[i] = "`" + label + "`"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", r.name, strings.ToLower(r.kind.String()), strings.Join(labels, ", "),
			strings.ReplaceAll(r.help, "|", "\\|"))
	}
	return text.String()
}

// rows are the metrics that are registered, by name.
func (p Part) rows(t *testing.T) map[string]row {
	t.Helper()
	rows := map[string]row{}
	for _, registry := range p.Registries {
		gathered := map[string]dto.MetricType{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			gathered[family.GetName()] = family.GetType()
		}
		for _, description := range descriptions(registry) {
			p.add(t, rows, parse(t, description), gathered)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("the part %s has no metrics", p.Name)
	}
	for _, name := range p.Histograms {
		if rows[name].kind != dto.MetricType_HISTOGRAM {
			t.Errorf("%s is not a histogram of the part %s", name, p.Name)
		}
	}
	return rows
}

func (p Part) add(t *testing.T, rows map[string]row, r row, gathered map[string]dto.MetricType) {
	if p.isElsewhere(r.name) {
		return
	}
	r.kind = p.kindOf(t, r.name, gathered)
	if known, twice := rows[r.name]; twice {
		r.labels = append(r.labels, known.labels...)
		slices.Sort(r.labels)
		r.labels = slices.Compact(r.labels)
	}
	rows[r.name] = r
}

func (p Part) isElsewhere(name string) bool {
	return slices.ContainsFunc(append([]string{"go_", "process_", "promhttp_"}, p.Elsewhere...), func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// kindOf is the type of a metric: that of its values, or else what its name says.
func (p Part) kindOf(t *testing.T, name string, gathered map[string]dto.MetricType) dto.MetricType {
	if kind, known := gathered[name]; known {
		return kind
	}
	switch {
	case slices.Contains(p.Histograms, name):
		return dto.MetricType_HISTOGRAM
	case strings.HasSuffix(name, "_total"):
		return dto.MetricType_COUNTER
	case strings.HasSuffix(name, "_seconds") && !slices.Contains(p.Gauges, name):
		t.Errorf("%s has no value: name it in Histograms or Gauges of the part %s", name, p.Name)
	}
	return dto.MetricType_GAUGE
}

func descriptions(registry *prometheus.Registry) (all []string) {
	channel := make(chan *prometheus.Desc)
	go func() {
		defer close(channel)
		registry.Describe(channel)
	}()
	for description := range channel {
		all = append(all, description.String())
	}
	return all
}

var (
	wholeForm = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constForm = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
)

// parse reads the text of a description, which is its only public form.
func parse(t *testing.T, description string) row {
	t.Helper()
	found := wholeForm.FindStringSubmatch(description)
	if found == nil {
		t.Fatalf("the description %s has another form", description)
	}
	var r row
	var err error
	if r.name, err = strconv.Unquote(found[1]); err != nil {
		t.Fatal(err)
	}
	if r.help, err = strconv.Unquote(found[2]); err != nil {
		t.Fatal(err)
	}
	for _, label := range constForm.FindAllStringSubmatch(found[3], -1) {
		r.labels = append(r.labels, label[1])
	}
	for label := range strings.SplitSeq(found[4], ",") {
		if label != "" {
			r.labels = append(r.labels, label)
		}
	}
	slices.Sort(r.labels)
	return r
}

// upstream are names of other projects, whose dashboards and alerts must find them.
func upstream() []string {
	return []string{"aws_ebs_csi_", "csi_sidecar_", "controller_persistentvolume", "workqueue_", "rest_client_", "leader_election_"}
}

// lint checks names and help texts as promtool does.
func lint(t *testing.T, rows map[string]row) {
	t.Helper()
	families := []*dto.MetricFamily{}
	for _, r := range rows {
		if !slices.ContainsFunc(upstream(), func(prefix string) bool { return strings.HasPrefix(r.name, prefix) }) {
			families = append(families, &dto.MetricFamily{Name: &r.name, Help: &r.help, Type: &r.kind})
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	for _, r := range rows {
		if !strings.HasSuffix(r.help, ".") {
			t.Errorf("%s: the help text %q is not a sentence", r.name, r.help)
		}
	}
}
