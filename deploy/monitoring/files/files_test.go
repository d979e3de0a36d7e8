package files_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/files"
	"github.com/holdfast-csi/holdfast/deploy/monitoring/rules"
)

const root = "../../.."

func TestFiles_areThoseOfTheCode(t *testing.T) {
	all, err := files.All()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range all {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes: run make monitoring", path)
		}
	}
	names := map[string]bool{}
	for path := range all {
		names[filepath.Base(path)] = true
	}
	// No file of these names is anywhere else: a second copy would be another file to use.
	err = filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if _, made := all[name]; !made && (names[entry.Name()] || strings.HasPrefix(name, files.Directory+"/")) {
			t.Errorf("%s is not made by the code, or a copy: run make monitoring, and remove it if it is still there", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRules_areThoseOfPrometheus(t *testing.T) {
	text, err := rules.File(rules.Clock{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) < 5 {
		t.Fatalf("the file has %v", groups)
	}
}

// TestAlerts_haveARunbookEach also rejects pages of alerts that are gone.
func TestAlerts_haveARunbookEach(t *testing.T) {
	var alerts []string
	for _, alert := range rules.Alerts(rules.Clock{}) {
		alerts = append(alerts, alert.Alert+".md")
		if alert.Annotations["runbook_url"] != rules.Runbooks+alert.Alert+".md" {
			t.Errorf("%s names the runbook %q", alert.Alert, alert.Annotations["runbook_url"])
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "docs/runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, entry := range entries {
		pages = append(pages, entry.Name())
	}
	if !slices.Equal(alerts, pages) {
		t.Errorf("the alerts are  %v\nthe runbooks are %v", alerts, pages)
	}
	for _, page := range pages {
		checkRunbook(t, page)
	}
}

var fires = regexp.MustCompile(`\.fires(?:Within)?\(.*"(\w+)"\)`)

// TestAlerts_haveAFaultEach finds alerts that no test of e2e makes to fire.
func TestAlerts_haveAFaultEach(t *testing.T) {
	sources, err := filepath.Glob("../e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var proved []string
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range fires.FindAllStringSubmatch(string(text), -1) {
			proved = append(proved, found[1])
		}
	}
	for _, alert := range rules.Alerts(rules.Clock{}) {
		if !slices.Contains(proved, alert.Alert) {
			t.Errorf("no test of deploy/monitoring/e2e makes %s to fire", alert.Alert)
		}
	}
}

func checkRunbook(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/runbooks", name))
	if err != nil {
		t.Fatal(err)
	}
	title, rest, _ := strings.Cut(string(text), "\n")
	if title != "# "+strings.TrimSuffix(name, ".md") {
		t.Errorf("%s has the title %q", name, title)
	}
	meaning, rest, _ := strings.Cut(rest, "\n## See\n")
	see, do, found := strings.Cut(rest, "\n## Do\n")
	for part, text := range map[string]string{"what the alert means": meaning, "how to see it": see, "what to do": do} {
		if !found || len(strings.Fields(text)) < 10 {
			t.Errorf("%s does not say %s", name, part)
		}
	}
}

// TestDashboards_areGrafanas decodes each file by the types of Grafana, strictly, and
// parses its queries.
func TestDashboards_areGrafanas(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	all, err := files.All()
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range all {
		if filepath.Ext(path) != ".json" {
			continue
		}
		var decoded dashboard.Dashboard
		if err := decoded.UnmarshalJSONStrict(content); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := decoded.Validate(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if *decoded.Uid+".json" != filepath.Base(path) {
			t.Errorf("%s has the UID %s", path, *decoded.Uid)
		}
		checkGrid(t, path, decoded)
	}
}

// checkGrid rejects panels that overlap, or lie outside the 24 columns.
func checkGrid(t *testing.T, path string, d dashboard.Dashboard) {
	t.Helper()
	taken := map[[2]uint32]string{}
	for _, p := range d.Panels {
		if p.Panel == nil {
			continue
		}
		title, at := *p.Panel.Title, p.Panel.GridPos
		if at.X+at.W > 24 {
			t.Errorf("%s: panel %s ends in column %d", path, title, at.X+at.W)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]uint32{x, y}]; other != "" {
					t.Fatalf("%s: panels %s and %s overlap", path, title, other)
				}
				taken[[2]uint32{x, y}] = title
			}
		}
	}
}

var variable = regexp.MustCompile(`\$\{?(\w+)`)

// TestDashboards_defineTheirVariables finds queries with variables that the dashboard
// lacks.
func TestDashboards_defineTheirVariables(t *testing.T) {
	all, err := files.All()
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range all {
		if filepath.Ext(path) != ".json" {
			continue
		}
		var decoded struct {
			Templating struct{ List []struct{ Name string } }
		}
		if err := json.Unmarshal(content, &decoded); err != nil {
			t.Fatal(err)
		}
		known := []string{"__rate_interval", "__all"}
		for _, v := range decoded.Templating.List {
			known = append(known, v.Name)
		}
		for _, used := range variable.FindAllStringSubmatch(string(content), -1) {
			if !slices.Contains(known, used[1]) {
				t.Errorf("%s uses the variable %s, which it lacks", path, used[1])
			}
		}
	}
}
