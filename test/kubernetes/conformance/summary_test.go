package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// head begins a spec of the suite, as ginkgo writes them.
const head = `{"LeafNodeType": "It", "ContainerHierarchyLabels": [["Driver: d"]], `

// Of each kind one.
const report = `[{"RunTime": 90000000000, "SpecReports": [
 ` + head + `"State": "passed", "ContainerHierarchyTexts": ["External Storage", "[Testpattern: Dynamic PV (ext4)] volumes"], "LeafNodeText": "should  store data"},
 {"LeafNodeType": "It", "State": "skipped", "ContainerHierarchyTexts": ["x"], "LeafNodeText": "of another suite"},
 ` + head + `"State": "skipped", "ContainerHierarchyTexts": ["[Testpattern: Dynamic PV] subPath"], "LeafNodeText": "stale"},
 ` + head + `"State": "skipped", "ContainerHierarchyTexts": ["[Testpattern: Dynamic PV] subPath"], "LeafNodeText": "of no pass"},
 ` + head + `"State": "skipped", "ContainerHierarchyTexts": ["[Testpattern: Dynamic PV] capacity"], "LeafNodeText": "tells",
  "Failure": {"Message": "Driver \"d\" does not support it -- skipping"}},
 ` + head + `"State": "timedout", "LeafNodeText": "hangs", "Failure": {"Message": "too long"}},
 {"LeafNodeType": "BeforeSuite", "State": "passed"},
 {"LeafNodeType": "AfterSuite", "State": "failed", "LeafNodeText": "after all"}
]}]`

// second passes a spec that the first skips.
const second = `[{"SpecReports": [
 ` + head + `"State": "skipped", "ContainerHierarchyTexts": ["External Storage", "[Testpattern: Dynamic PV (ext4)] volumes"], "LeafNodeText": "should  store data"},
 ` + head + `"State": "passed", "ContainerHierarchyTexts": ["[Testpattern: Dynamic PV] capacity"], "LeafNodeText": "tells"}
]}]`

func read(t *testing.T, p pass, text string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readResult(p, file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResult_countsTheSpecsOfTheSuiteAndEveryFailure(t *testing.T) {
	r := read(t, pass{}, report)
	if got, want := r.counts(), "1 passed, 2 failed, 1 skipped themselves, 2 not selected"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
	if r.took != 90*time.Second {
		t.Errorf("took %v", r.took)
	}
}

func TestSummary_tellsWhatBecameOfEverySpec(t *testing.T) {
	one := pass{name: "one", skip: []exclusion{{"stale", "it is about something else"}}}
	text := summarise([]result{read(t, one, report)}).markdown()
	for _, want := range []string{
		"Of 6 specs 1 passed, 2 failed, 1 skipped themselves in every pass, and 2 were not selected. The passes took 2 minutes.",
		"| one |  | 1 | 2 | 1 | 2 |",
		"### Passed\n\n- Dynamic PV (ext4): volumes should store data (one)\n",
		"### Skipped itself: Driver \"d\" does not support it\n\n- Dynamic PV: capacity tells\n",
		"### Not selected: it is about something else\n\n- Dynamic PV: subPath stale\n",
		"### Not selected\n\n- Dynamic PV: subPath of no pass\n",
		"- hangs (one)", "- after all (one)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
}

func TestSummary_aSpecHasPassedIfOnePassRanIt(t *testing.T) {
	s := summarise([]result{read(t, pass{name: "one"}, report), read(t, pass{name: "two"}, second)})
	if v := s.specs["Dynamic PV: capacity tells"]; v.became != passed || len(v.passes) != 1 || v.passes[0] != "two" {
		t.Errorf("skipped and passed is %+v", v)
	}
	if v := s.specs["Dynamic PV (ext4): volumes should store data"]; v.became != passed {
		t.Errorf("passed and not selected is %+v", v)
	}
	if err := s.complete(); err == nil || !strings.Contains(err.Error(), "no pass selects") {
		t.Errorf("a spec that no pass selects and no reason explains: %v", err)
	}
}

func TestReplaceBetweenMarkers_keepsTheRest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("before\n"+beginMarker+"\nold\n"+endMarker+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := replaceBetweenMarkers(file, "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if want := "before\n" + beginMarker + "\n\nnew\n\n" + endMarker + "\nafter\n"; err != nil || string(data) != want {
		t.Errorf("%q, %v; want %q", data, err, want)
	}
	if err := os.WriteFile(file, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceBetweenMarkers(file, "new"); err == nil {
		t.Error("a file without markers is written")
	}
}
