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
	// quoted: each test of a row mentions its identifier. Otherwise the tests state
	// the requirement in words, and the page alone has the identifiers.
	quoted bool
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
		{"docs/reference/ebs.md", map[string]int{"D": 29, "X": 46, "U": 21}, false},
		{"docs/reference/host-conformance.md", map[string]int{"KEP": 19, "CM": 112}, true},
		{"docs/reference/windows.md", map[string]int{"G": 5, "P": 10, "W": 8, "T": 3, "U": 5, "D": 21, "L": 4}, false},
	}
}

// TestChecklist_everyRequirementHasItsTest compares the tables with the tree: each
// requirement and each defect is there once, with tests that exist, or with the
// reason why there is none.
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
					for _, wrong := range checkCell(tests, id, cell, list.quoted) {
						t.Errorf("%s: %s", id, wrong)
					}
				}
			}
			for id := range rows {
				if !slices.Contains(list.identifiers(), id) {
					t.Errorf("%s is in the table; there is no such requirement", id)
				}
			}
		})
	}
}

var named = regexp.MustCompile("`([\\w/]+)\\.(Test\\w+)`")

// checkCell returns what is wrong with the last cell of a row.
func checkCell(tests []testFunction, id, cell string, quoted bool) (wrong []string) {
	if reason, none := strings.CutPrefix(cell, "none: "); none && reason != "" {
		return nil
	}
	names := named.FindAllStringSubmatch(cell, -1)
	if len(names) == 0 {
		return []string{fmt.Sprintf("%q names no test, and no reason (none: …)", cell)}
	}
	for _, name := range names {
		found := slices.IndexFunc(tests, func(f testFunction) bool { return f.name == name[2] && strings.HasSuffix("/"+f.directory, "/"+name[1]) })
		switch {
		case found < 0:
			wrong = append(wrong, fmt.Sprintf("there is no test %s in a package %s", name[2], name[1]))
		case quoted && !tests[found].mentions(id):
			wrong = append(wrong, fmt.Sprintf("%s does not mention it", name[0]))
		}
	}
	return wrong
}

// readChecklist gives the last cells of the table's rows by their identifier.
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

// testFunction is a test with its comment and body.
type testFunction struct{ directory, name, text string }

// mentions reports whether the test names an identifier, as D-9 in its text or as
// TestD9_… in its name.
func (f testFunction) mentions(id string) bool {
	return strings.HasPrefix(f.name, "Test"+strings.Replace(id, "-", "", 1)+"_") ||
		regexp.MustCompile(`\b`+id+`\b`).MatchString(f.text)
}

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
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") {
			continue
		}
		begin := function.Pos()
		if function.Doc != nil {
			begin = function.Doc.Pos()
		}
		tests = append(tests, testFunction{
			directory: filepath.ToSlash(filepath.Dir(path)), name: function.Name.Name,
			text: string(source[files.Position(begin).Offset:files.Position(function.End()).Offset]),
		})
	}
	return tests, nil
}

// A table that is wrong is found to be.
func TestChecklist_findsWhatIsWrong(t *testing.T) {
	tests := []testFunction{{"../../internal/a", "TestD9_one", ""}, {"../../test/a", "TestTwo", "// X-1: two\nfunc TestTwo() {}"}}
	for cell, right := range map[string]bool{
		"`a.TestD9_one`": true, "`internal/a.TestD9_one`, `a.TestD9_one`": true, "none: because": true,
		"`a.TestTwo`": false, "`test/a.TestD9_one`": false, "`b.TestD9_one`": false, "`a.TestD9_one`, `a.TestThree`": false, "none": false, "": false,
	} {
		if wrong := checkCell(tests, "D-9", cell, true); (len(wrong) == 0) != right {
			t.Errorf("%q: %q", cell, wrong)
		}
	}
}
