package archtest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// foundBy is the beginning of the second cell of each row of docs/explanation/found.md, and
// the first cell of a row of docs/reference/verification.md.
var foundBy = regexp.MustCompile(`(?m)^- \*\*([a-z]+)\*\*: `)

// TestPages_defectsAreCounted: each defect says by a known word how it was found, and the
// table of verification.md has the sums.
func TestPages_defectsAreCounted(t *testing.T) {
	found, err := os.ReadFile("../../docs/explanation/found.md")
	if err != nil {
		t.Fatal(err)
	}
	counts, wrong := countDefects(string(found))
	for _, row := range wrong {
		t.Errorf("docs/explanation/found.md: %q says by no word of the list how it was found", row)
	}
	page, err := os.ReadFile("../../docs/reference/verification.md")
	if err != nil {
		t.Fatal(err)
	}
	for way, n := range counts {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %s(:[^|]*)? \| %d \|`, way, n))
		if !row.Match(page) {
			t.Errorf("docs/reference/verification.md lacks the row `| %s… | %d |` in its table of defects", way, n)
		}
	}
}

// countDefects counts the rows of a page by the word that begins their second cell, and
// returns those that begin with none of the page's words.
func countDefects(page string) (counts map[string]int, wrong []string) {
	counts = map[string]int{}
	for _, word := range foundBy.FindAllStringSubmatch(page, -1) {
		counts[word[1]] = 0
	}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Defect |") || strings.HasPrefix(line, "| --- |") {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), "|")
		way, _, _ := strings.Cut(strings.TrimSpace(cells[2]), ":")
		if _, known := counts[way]; !known {
			wrong = append(wrong, strings.TrimSpace(cells[1]))
			continue
		}
		counts[way]++
	}
	return counts, wrong
}

func TestCountDefects(t *testing.T) {
	counts, wrong := countDefects("- **fuzz**: random input.\n- **power**: lost.\n\n| Defect | Found by | Test |\n| --- | --- | --- |\n" +
		"| a | fuzz | `x` |\n| b `c\\|d` | fuzz: a seed | y |\n| e | luck | z |\n")
	if fmt.Sprint(counts) != "map[fuzz:2 power:0]" || fmt.Sprint(wrong) != "[e]" {
		t.Errorf("counts %v, wrong %q", counts, wrong)
	}
}
