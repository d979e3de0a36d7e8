package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPages_linksLeadSomewhere follows every relative link of every page to its
// file and heading.
func TestPages_linksLeadSomewhere(t *testing.T) {
	pages := readPages(t, "../..")
	for path, page := range pages {
		for _, wrong := range brokenLinks(pages, path, page) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

// TestPages_verificationNamesTestsThatExist compares the table of requirements with
// the tree.
func TestPages_verificationNamesTestsThatExist(t *testing.T) {
	tests := readTests(t, "../..")
	page, err := os.ReadFile("../../docs/reference/verification.md")
	if err != nil {
		t.Fatal(err)
	}
	names := named.FindAllStringSubmatch(string(page), -1)
	if len(names) < 20 {
		t.Fatalf("the page names %d tests: the pattern no longer fits it", len(names))
	}
	for _, name := range names {
		if !slices.ContainsFunc(tests, func(f testFunction) bool { return f.name == name[2] && f.directory == "../../"+name[1] }) {
			t.Errorf("package %s has no test %s", name[1], name[2])
		}
	}
}

// TestPages_theLayoutNamesEachPackage: the architecture shows the packages at the levels
// that it describes, except helpers of tests.
func TestPages_theLayoutNamesEachPackage(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, layout, _ := strings.Cut(string(page), "\n## Layout\n")
	layout, _, _ = strings.Cut(layout, "\n## ")
	names := strings.Fields(layout)
	for _, level := range []string{
		"internal", "internal/kube", "internal/backend", "internal/backend/ebs", "internal/csi", "internal/host", "internal/linux",
	} {
		entries, err := os.ReadDir("../../" + level)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if name := entry.Name() + "/"; entry.IsDir() && entry.Name() != "testdata" && !slices.Contains(names, name) {
				t.Errorf("the layout lacks %s/%s", level, name)
			}
		}
	}
}

// readPages returns the Markdown files below root by their paths.
func readPages(t *testing.T, root string) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		pages[filepath.ToSlash(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
)

// brokenLinks reports the relative links of a page that lack their file or heading.
func brokenLinks(pages map[string]string, path, page string) (wrong []string) {
	for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		target, heading, _ := strings.Cut(found[1], "#")
		if strings.Contains(target, ":") {
			continue
		}
		to := path
		if target != "" {
			to = filepath.ToSlash(filepath.Join(filepath.Dir(path), target))
		}
		if _, isPage := pages[to]; !isPage {
			if _, err := os.Stat(to); err != nil {
				wrong = append(wrong, "no file for the link "+found[1])
				continue
			}
		}
		if heading != "" && !slices.Contains(headings(pages[to]), heading) {
			wrong = append(wrong, "no heading for the link "+found[1])
		}
	}
	return wrong
}

var (
	headingLine = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unspoken    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// headings returns the anchors that GitHub gives the headings of a page.
func headings(page string) (anchors []string) {
	for _, found := range headingLine.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := linkText.ReplaceAllString(found[1], "$1")
		anchors = append(anchors, strings.ReplaceAll(unspoken.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
	}
	return anchors
}

func TestPages_findsBrokenLinks(t *testing.T) {
	pages := map[string]string{
		"no/a.md": "# A page: `one`, [two](b.md)\n```\n# comment\n[not](nowhere.md)\n```\n",
		"no/b.md": "## B\n",
	}
	for text, broken := range map[string]int{
		"[x](a.md) [x](b.md#b) [x](#here)\n# Here\n": 0, "[x](a.md#a-page-one-two)": 0, "[x](https://example.com/y.md)": 0,
		"[x](c.md)": 1, "[x](b.md#c)": 1, "[x](a.md#comment)": 1, "[x](#there)": 1, "[x](../a.md)": 1,
	} {
		pages["no/c2.md"] = text
		if wrong := brokenLinks(pages, "no/c2.md", text); len(wrong) != broken {
			t.Errorf("%q: %q", text, wrong)
		}
	}
}
