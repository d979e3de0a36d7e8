package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// spec is a spec in ginkgo's JSON report.
type spec struct {
	ContainerHierarchyTexts  []string
	ContainerHierarchyLabels [][]string
	LeafNodeType             string
	LeafNodeText             string
	LeafNodeLabels           []string
	State                    string // passed, skipped, pending, failed, panicked, timedout…
	RunTime                  time.Duration
	Failure                  struct{ Message string }
}

// fullName is what regular expressions of names are matched with.
func (s spec) fullName() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// name is the spec's, without the words that all have in common.
func (s spec) name() string {
	full := s.fullName()
	_, after, ok := strings.Cut(full, "[Testpattern: ")
	if !ok {
		return full
	}
	pattern, rest, _ := strings.Cut(after, "]")
	return strings.TrimSpace(pattern) + ": " + strings.Join(strings.Fields(rest), " ")
}

// ofDriver reports whether a spec belongs to the suite, not to a package that the suite
// imports.
func (s spec) ofDriver() bool {
	for _, labels := range append(slices.Clone(s.ContainerHierarchyLabels), s.LeafNodeLabels) {
		if slices.ContainsFunc(labels, func(label string) bool { return strings.HasPrefix(label, "Driver: ") }) {
			return true
		}
	}
	return false
}

// outcome is the outcome of a spec.
type outcome int

// In ascending order of precedence for a spec of several passes.
const (
	unselected outcome = iota
	skipped            // by itself, because a requirement is missing
	passed
	failed
)

// outcome is the spec's, and the reason that it gave for skipping itself.
func (s spec) outcome() (outcome, string) {
	switch {
	case !slices.Contains([]string{"passed", "skipped", "pending"}, s.State):
		return failed, "" // also the suite's setup and teardown
	case s.State == "passed":
		return passed, ""
	case s.Failure.Message != "":
		message := strings.TrimSpace(s.Failure.Message)
		for _, end := range []string{"- skipping", "-- skipping", "skipping"} {
			message = strings.TrimRight(strings.TrimSuffix(message, end), " -,")
		}
		return skipped, message
	}
	return unselected, ""
}

// result is the result of a pass.
type result struct {
	pass  pass
	took  time.Duration
	specs []spec
}

func readResult(p pass, file string) (result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return result{}, err
	}
	var reports []struct {
		RunTime     time.Duration
		SpecReports []spec
	}
	if err := json.Unmarshal(data, &reports); err != nil {
		return result{}, fmt.Errorf("%s: %w", file, err)
	}
	r := result{pass: p}
	for _, report := range reports {
		r.took += report.RunTime
		for _, s := range report.SpecReports {
			became, _ := s.outcome()
			if s.LeafNodeType == "It" && s.ofDriver() || became == failed {
				r.specs = append(r.specs, s)
			}
		}
	}
	return r, nil
}

func (r result) count() map[outcome]int {
	n := make(map[outcome]int)
	for _, s := range r.specs {
		became, _ := s.outcome()
		n[became]++
	}
	return n
}

func (r result) counts() string {
	n := r.count()
	return fmt.Sprintf("%d passed, %d failed, %d skipped themselves, %d not selected", n[passed], n[failed], n[skipped], n[unselected])
}
