package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// summary says of every spec the most that a pass has to say of it.
type summary struct {
	results []result
	specs   map[string]verdict // by name
}

type verdict struct {
	became outcome
	reason string   // of one that was not run
	passes []string // that ran it
}

func summarise(results []result) *summary {
	s := &summary{results: results, specs: make(map[string]verdict)}
	for _, r := range results {
		for _, spec := range r.specs {
			s.add(r.pass, spec)
		}
	}
	return s
}

func (s *summary) add(p pass, spec spec) {
	name := spec.name()
	v, known := s.specs[name]
	became, reason := spec.outcome()
	if became == unselected {
		reason = p.reason(spec.fullName())
	}
	if !known || became > v.became || became == v.became && v.reason == "" {
		v.became, v.reason = became, reason
	}
	if became == passed || became == failed {
		v.passes = append(v.passes, p.name)
	}
	s.specs[name] = v
}

// of are the names of the specs with an outcome.
func (s *summary) of(became outcome) []string {
	var names []string
	for name, v := range s.specs {
		if v.became == became {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// because are those of them with a reason.
func (s *summary) because(became outcome, reason string) []string {
	return slices.DeleteFunc(s.of(became), func(name string) bool { return s.specs[name].reason != reason })
}

// reasons are those of the specs that were not run.
func (s *summary) reasons(became outcome) []string {
	reasons := make(map[string]bool)
	for _, v := range s.specs {
		if v.became == became {
			reasons[v.reason] = true
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}

func (s *summary) counts() string {
	return fmt.Sprintf("Of %d specs %d passed, %d failed, %d skipped themselves in every pass, and %d were not selected",
		len(s.specs), len(s.of(passed)), len(s.of(failed)), len(s.of(skipped)), len(s.of(unselected)))
}

// complete returns an error if a spec was not run and has no reason.
func (s *summary) complete() error {
	for _, name := range s.of(unselected) {
		if s.specs[name].reason == "" {
			return fmt.Errorf("no pass selects %q: give the reason in selection.go", name)
		}
	}
	return nil
}

// markdown formats the summary.
func (s *summary) markdown() string {
	var b strings.Builder
	var took time.Duration
	for _, r := range s.results {
		took += r.took
	}
	fmt.Fprintf(&b, "%s. The passes took %d minutes.\n\n", s.counts(), int(took.Round(time.Minute).Minutes()))
	b.WriteString("| Pass | Class | Passed | Failed | Skipped itself | Minutes |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range s.results {
		n := r.count()
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %.0f |\n", r.pass.name, r.pass.about, n[passed], n[failed], n[skipped], r.took.Minutes())
	}
	list(&b, "Failed", s.withPasses(failed))
	for _, reason := range s.reasons(unselected) {
		list(&b, strings.TrimSuffix("Not selected: "+reason, ": "), s.because(unselected, reason))
	}
	for _, reason := range s.reasons(skipped) {
		list(&b, "Skipped itself: "+reason, s.because(skipped, reason))
	}
	list(&b, "Passed", s.withPasses(passed))
	return b.String()
}

// withPasses are the specs with an outcome, and the passes that ran each.
func (s *summary) withPasses(became outcome) []string {
	names := s.of(became)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", name, strings.Join(s.specs[name].passes, ", "))
	}
	return names
}

func list(b *strings.Builder, title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n", title)
	for _, name := range names {
		fmt.Fprintf(b, "- %s\n", name)
	}
}

const (
	beginMarker = "<!-- begin: written by `make conformance` -->"
	endMarker   = "<!-- end -->"
)

// replaceBetweenMarkers puts the text into a file of the documentation.
func replaceBetweenMarkers(file, text string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(data), beginMarker)
	_, after, ended := strings.Cut(rest, endMarker)
	if !begun || !ended {
		return fmt.Errorf("%s: the markers %s and %s are missing", file, beginMarker, endMarker)
	}
	return os.WriteFile(file, []byte(before+beginMarker+"\n\n"+text+"\n"+endMarker+after), 0o644)
}
