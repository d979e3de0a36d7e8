package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Values of lists, and values that occur in several sections, are named by their last
// part.
func TestReference_namesEveryValue(t *testing.T) {
	text := page(t, "chart.md")
	for name := range schemaNames(t) {
		last := name[strings.LastIndexByte(name, '.')+1:]
		if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "."+last+"`") && !strings.Contains(text, "`"+name+".") {
			t.Errorf("docs/reference/chart.md lacks %s", name)
		}
	}
}

func TestReference_hasNoValuesThatAreGone(t *testing.T) {
	names := schemaNames(t)
	for _, match := range regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)`").FindAllStringSubmatch(page(t, "chart.md"), -1) {
		if !names[match[1]] && match[1] != "values.yaml" && match[1] != "values.schema.json" {
			t.Errorf("docs/reference/chart.md has %s, which is not a value", match[1])
		}
	}
}

func TestReference_namesEveryFlagOfTheControllers(t *testing.T) {
	text := page(t, "kubernetes.md") + page(t, "driver.md") + page(t, "run.md")
	for flag := range flagsIn(t, "cli/kubernetes.go", "kube/tuning.go", "kube/limits.go", "kube/lease/flags.go") {
		if !strings.Contains(text, "`--"+flag+"`") {
			t.Errorf("docs/reference/kubernetes.md lacks --%s", flag)
		}
	}
}
