package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checklist is a page with a table of requirements, each with its tests.
type checklist struct {
	page string // from the root of the tree
	// kinds are the letters of identifiers, each with the last number: D-1 to D-29,
	// and so on.
	kinds map[string]int
}

func (c checklist) identifiers() (all []string) {
	for letter, last := range c.kinds {
		for i := range last {
			all = append(all, fmt.Sprintf("%s-%d", letter, i+1))
		}
	}
	slices.Sort(all)
	return all
}

func checklists() []checklist {
	return []checklist{
		{"docs/reference/ebs.md", map[string]int{"D": 29, "X": 46, "U": 21}},
		{"docs/reference/host-conformance.md", map[string]int{"KEP": 19, "CM": 112}},
		{"docs/reference/windows.md", map[string]int{"G": 5, "P": 10, "W": 8, "T": 3, "U": 5, "D": 21, "L": 4}},
	}
}

// TestChecklist_everyRequirementHasItsTest compares the tables with the tree: each
// requirement and each defect is there once, with tests that exist, or with the
// reason why there is none. The tests state the requirement in words, and the page
// alone has the identifiers.
func TestChecklist_everyRequirementHasItsTest(t *testing.T) {
	tests := readTests(t, "../..")
	for _, list := range checklists() {
		t.Run(list.page, func(t *testing.T) {
			rows := readChecklist(t, list.page)
			for _, id := range list.identifiers() {
				cells := rows[id]
				if len(cells) != 1 {
					t.Errorf("%s: %d rows; want one", id, len(cells))
				}
				for _, cell := range cells {
					for _, wrong := range checkCell(tests, cell) {
						t.Errorf("%s: %s", id, wrong)
					}
				}
			}
			for id := range rows {
				if !slices.Contains(list.identifiers(), id) {
					t.Errorf("%s is in the table but not a requirement", id)
				}
			}
		})
	}
}

var named = regexp.MustCompile("`([\\w/]+)\\.(Test\\w+)`")

// checkCell returns what is wrong with the last cell of a row.
func checkCell(tests []testFunction, cell string) (wrong []string) {
	if reason, none := strings.CutPrefix(cell, "none: "); none && reason != "" {
		return nil
	}
	names := named.FindAllStringSubmatch(cell, -1)
	if len(names) == 0 {
		return []string{fmt.Sprintf("%q names no test, and no reason (none: …)", cell)}
	}
	for _, name := range names {
		exists := slices.ContainsFunc(tests, func(f testFunction) bool {
			return f.name == name[2] && strings.HasSuffix("/"+f.directory, "/"+name[1])
		})
		if !exists {
			wrong = append(wrong, fmt.Sprintf("no test %s in a package %s", name[2], name[1]))
		}
	}
	return wrong
}

// readChecklist returns the last cells of the table's rows by their identifier.
func readChecklist(t *testing.T, name string) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ([A-Z]+-\d+) \|.*\| (.*) \|$`)
	rows := map[string][]string{}
	for _, found := range row.FindAllStringSubmatch(string(page), -1) {
		rows[found[1]] = append(rows[found[1]], found[2])
	}
	return rows
}

// testFunction is a test of a package.
type testFunction struct{ directory, name string }

// readTests finds the tests of all modules below a directory, for every
// system they are.
func readTests(t *testing.T, root string) (tests []testFunction) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."), entry.IsDir() && entry.Name() == "testdata":
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		of, err := testsOf(path)
		tests = append(tests, of...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func testsOf(path string) (tests []testFunction, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") {
			tests = append(tests, testFunction{filepath.ToSlash(filepath.Dir(path)), function.Name.Name})
		}
	}
	return tests, nil
}

// A table that is wrong is found to be.
func TestChecklist_findsFaults(t *testing.T) {
	tests := []testFunction{{"../../internal/a", "TestOne"}, {"../../test/a", "TestTwo"}}
	for cell, right := range map[string]bool{
		"`a.TestOne`": true, "`internal/a.TestOne`, `a.TestTwo`": true, "none: because": true,
		"`test/a.TestOne`": false, "`b.TestOne`": false, "`a.TestOne`, `a.TestThree`": false, "none": false, "": false,
	} {
		if wrong := checkCell(tests, cell); (len(wrong) == 0) != right {
			t.Errorf("%q: %q", cell, wrong)
		}
	}
}
