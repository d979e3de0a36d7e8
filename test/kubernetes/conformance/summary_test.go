package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of each kind one, as ginkgo writes them.
const report = `[{"SpecReports": [
 {"LeafNodeType": "It", "State": "passed", "RunTime": 2000000000,
  "ContainerHierarchyTexts": ["External Storage", "[Testpattern: Dynamic PV (ext4)] volumes"], "LeafNodeText": "should store data"},
 {"LeafNodeType": "It", "State": "skipped", "ContainerHierarchyTexts": ["x"], "LeafNodeText": "of another suite"},
 {"LeafNodeType": "It", "State": "skipped", "ContainerHierarchyTexts": ["[Testpattern: Dynamic PV] capacity"], "LeafNodeText": "tells",
  "Failure": {"Message": "Driver \"d\" does not support it - skipping"}},
 {"LeafNodeType": "It", "State": "timedout", "LeafNodeText": "hangs", "Failure": {"Message": "too long"}},
 {"LeafNodeType": "BeforeSuite", "State": "passed"},
 {"LeafNodeType": "AfterSuite", "State": "failed", "LeafNodeText": "after all"}
]}]`

func TestSummary_tellsWhatBecameOfEverySpec(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := summarise(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.counts(), "1 specs passed, 2 failed, 1 skipped themselves, 1 were not selected"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
	text := s.markdown()
	for _, want := range []string{
		"## Passed\n\n- Dynamic PV (ext4): volumes should store data (2 s)",
		"## Skipped: Driver \"d\" does not support it\n\n- Dynamic PV: capacity tells",
		"- hangs", "- after all",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
}
