package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// spec is what ginkgo's JSON report says of one.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string // passed, skipped, pending, failed, panicked, timedout…
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// name is the spec's, without the words that all have in common.
func (s spec) name() string {
	full := strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
	if _, after, ok := strings.Cut(full, "[Testpattern: "); ok {
		pattern, rest, _ := strings.Cut(after, "]")
		return pattern + ": " + strings.TrimSpace(rest)
	}
	return full
}

// summary sorts the specs that were selected by what became of them.
type summary struct {
	passed, failed []spec
	skipped        map[string][]spec // by the reason that the spec gave
	unselected     int
}

func summarise(file string) (*summary, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := &summary{skipped: make(map[string][]spec)}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			s.add(spec)
		}
	}
	return s, nil
}

func (s *summary) add(spec spec) {
	failed := !slices.Contains([]string{"passed", "skipped", "pending"}, spec.State)
	switch {
	case failed: // what comes before and after all specs, too
		s.failed = append(s.failed, spec)
	case spec.LeafNodeType != "It":
	case spec.State == "passed":
		s.passed = append(s.passed, spec)
	case spec.Failure.Message != "":
		reason := strings.TrimSuffix(strings.TrimSpace(spec.Failure.Message), " - skipping")
		s.skipped[reason] = append(s.skipped[reason], spec)
	default:
		s.unselected++
	}
}

func (s *summary) counts() string {
	skipped := 0
	for _, specs := range s.skipped {
		skipped += len(specs)
	}
	return fmt.Sprintf("%d specs passed, %d failed, %d skipped themselves, %d were not selected",
		len(s.passed), len(s.failed), skipped, s.unselected)
}

// markdown lists all that were selected.
func (s *summary) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", s.counts())
	list(&b, "Failed", s.failed)
	list(&b, "Passed", s.passed)
	reasons := make([]string, 0, len(s.skipped))
	for reason := range s.skipped {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	for _, reason := range reasons {
		list(&b, "Skipped: "+reason, s.skipped[reason])
	}
	return b.String()
}

func list(b *strings.Builder, title string, specs []spec) {
	if len(specs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	names := make([]string, 0, len(specs))
	for _, s := range specs {
		names = append(names, fmt.Sprintf("- %s (%.0f s)", s.name(), s.RunTime.Seconds()))
	}
	slices.Sort(names)
	b.WriteString(strings.Join(names, "\n") + "\n")
}
