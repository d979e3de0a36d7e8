package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestPasses_areWhatGinkgoCanBeTold(t *testing.T) {
	names := make(map[string]bool)
	for _, p := range passes() {
		if names[p.name] {
			t.Errorf("two passes %s", p.name)
		}
		names[p.name] = true
		for _, expression := range []string{p.focus(), p.skipped()} {
			if _, err := regexp.Compile(expression); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		for _, e := range p.skip {
			if e.reason == "" {
				t.Errorf("%s leaves out %q without a reason", p.name, e.names)
			}
		}
	}
}

func TestPasses_useClassesThatTheChartMakes(t *testing.T) {
	values := strings.Join(values(), "\n")
	for _, p := range passes() {
		if p.class != "holdfast-local" && !strings.Contains(values, "name="+p.class+"\n") {
			t.Errorf("pass %s has class %s, which the values do not make", p.name, p.class)
		}
	}
}

func TestChoose_knowsThePasses(t *testing.T) {
	all := []pass{{name: "one"}, {name: "two"}, {name: "three"}}
	if chosen, err := choose(all, "three,one"); err != nil || len(chosen) != 2 || chosen[0].name != "three" {
		t.Errorf("%v, %v", chosen, err)
	}
	if chosen, err := choose(all, ""); err != nil || len(chosen) != 3 {
		t.Errorf("none named: %v, %v", chosen, err)
	}
	if _, err := choose(all, "one,four"); err == nil {
		t.Error("a pass that there is not")
	}
}

// capabilitiesOf reads a definition.
func capabilitiesOf(t *testing.T, file string) (class string, capabilities map[string]bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		StorageClass struct{ FromExistingClassName string }
		DriverInfo   struct{ Capabilities map[string]bool }
	}
	if err := yaml.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d.StorageClass.FromExistingClassName, d.DriverInfo.Capabilities
}

func TestDefine_changesTheClassAndAddsMissingFields(t *testing.T) {
	file := filepath.Join(t.TempDir(), "driver.yaml")
	for _, p := range passes() {
		if err := define(p, "local.yaml", file); err != nil {
			t.Fatal(err)
		}
		_, want := capabilitiesOf(t, "local.yaml")
		for _, name := range p.without {
			want[name] = false
		}
		class, got := capabilitiesOf(t, file)
		if class != p.class || !maps.Equal(got, want) {
			t.Errorf("%s: class %s, capabilities %v; want %s, %v", p.name, class, got, p.class, want)
		}
	}
	if err := define(pass{without: []string{"RWX"}}, "local.yaml", file); err == nil {
		t.Error("a capability that is not claimed is taken away")
	}
}

// The page says why of each capability that is not claimed, and of no other.
func TestDocumentation_explainsUnclaimedCapabilities(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| Not claimed | Why |\n| --- | --- |\n")
	var explained []string
	for line := range strings.Lines(table) {
		name, found := strings.CutPrefix(line, "| `")
		if !found {
			break
		}
		name, _, _ = strings.Cut(name, "`")
		explained = append(explained, name)
	}
	_, capabilities := capabilitiesOf(t, "local.yaml")
	var unclaimed []string
	for name, claimed := range capabilities {
		if !claimed {
			unclaimed = append(unclaimed, name)
		}
	}
	slices.Sort(explained)
	slices.Sort(unclaimed)
	if !slices.Equal(explained, unclaimed) {
		t.Errorf("the page explains %v; not claimed are %v", explained, unclaimed)
	}
}
