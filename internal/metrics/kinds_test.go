package metrics

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The page of metrics has the kinds of operations of the code.
func TestKinds_areThoseOfThePage(t *testing.T) {
	var want strings.Builder
	want.WriteString("| Kind | Cluster | Host | What |\n| --- | --- | --- | --- |\n")
	yes := map[bool]string{true: "yes"}
	var names []string
	for _, kind := range Kinds() {
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", kind.Name, yes[kind.Cluster], yes[kind.Host], kind.What)
		if names = append(names, kind.Name); !kind.Cluster && !kind.Host || kind.What == "" {
			t.Errorf("%+v is of nobody", kind)
		}
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(Kinds()) {
		t.Errorf("a kind is there twice: %v", names)
	}
	const path = "../../docs/reference/metrics.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), "<!-- kinds -->\n")
	now, after, found := strings.Cut(rest, "<!-- end -->\n")
	if !found || now == want.String() {
		if !found {
			t.Errorf("%s lacks the kinds of operations", path)
		}
		return
	}
	if os.Getenv("HOLDFAST_UPDATE_METRICS") == "" {
		t.Fatalf("%s does not have the kinds of the code; write them with HOLDFAST_UPDATE_METRICS=1. Want:\n%s", path, want.String())
	}
	if err := os.WriteFile(path, []byte(before+"<!-- kinds -->\n"+want.String()+"<!-- end -->\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
