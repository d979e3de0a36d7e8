package main

import (
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/archtest"
)

// smallPackage is the number of lines below which a package counts as small.
const smallPackage = 100

// shape has the numbers of the table.
type shape struct {
	productLines, simulatorLines, generatedLines, testLines, otherLines int
	packages, small, oneImporter                                        int
	functions                                                           []int // sorted
	upward                                                              []archtest.Arrow
}

func measure(packages []*goPackage) shape {
	var s shape
	importers := map[string]int{}
	for _, p := range packages {
		if !inProduct(p.name) {
			continue
		}
		for _, imported := range p.imports {
			importers[imported]++
		}
	}
	for _, p := range packages {
		if !below(p.name, "cmd", "internal", "proto", "simulation") {
			s.otherLines += p.lines + p.tests
			continue
		}
		s.generatedLines += p.generated
		s.testLines += p.tests
		if !inProduct(p.name) {
			s.simulatorLines += p.lines
			continue
		}
		s.productLines += p.lines
		s.functions = append(s.functions, p.functions...)
		s.upward = append(s.upward, archtest.Upward(p.name, p.imports)...)
		if p.lines == 0 {
			continue // tests or generated code alone
		}
		s.packages++
		if p.lines < smallPackage {
			s.small++
		}
		if importers[p.name] == 1 {
			s.oneImporter++
		}
	}
	slices.Sort(s.functions)
	return s
}

func inProduct(name string) bool {
	return below(name, "cmd", "internal", "proto") && !archtest.IsSimulator(name)
}

func below(name string, tops ...string) bool {
	first, _, _ := strings.Cut(name, "/")
	return slices.Contains(tops, first)
}

// quantile returns the length that percent of the functions do not exceed.
func (s shape) quantile(percent int) int {
	if len(s.functions) == 0 {
		return 0
	}
	return s.functions[max(0, (len(s.functions)*percent+99)/100-1)]
}
