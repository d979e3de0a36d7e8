package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A page says in HTML comments, which readers do not see, how the next fenced
// block is run:
//
//	<!-- test-docs: not run: REASON -->
//	<!-- test-docs: background until COMMAND -->  a second terminal
//	<!-- test-docs: exits CODE -->                of the last command
//	<!-- test-docs: prints TEXT -->
//	<!-- test-docs: file PATH -->                 the block is the file's text
//	<!-- test-docs: before                        steps of earlier pages
//	COMMANDS
//	-->
//	<!-- test-docs: page not run: REASON -->      all blocks of the page
//	<!-- test-docs: page cluster -->              the page runs with -docs.cluster alone
//
// Blocks of sh are commands; those of console have commands after "# ".

// block is a fenced block with what its page says about it.
type block struct {
	page string
	line int // of its first fence
	info string
	text string

	reason     string // not run, and why
	background string // run on, until this command succeeds
	exits      int
	prints     []string
	file       string
	before     string
	cluster    bool // a Kubernetes is started on the scratch machine
}

func (b block) runs() bool { return b.reason == "" && (b.info == "sh" || b.info == "console") }

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// commands are the block's without prompts and output.
func (b block) commands() string {
	if b.info != "console" {
		return b.text
	}
	var text strings.Builder
	for line := range strings.Lines(b.text) {
		if command, ok := strings.CutPrefix(line, "# "); ok {
			text.WriteString(command)
		}
	}
	return text.String()
}

var (
	fence     = regexp.MustCompile("^( *)```+ *(\\w*) *$")
	directive = regexp.MustCompile(`^ *<!-- test-docs: (.*?)( -->)?$`)
)

// parse finds the blocks of a page. What it cannot read is an error: a directive
// that is misspelled would leave its block to chance.
func parse(name, page string) (blocks []block, err error) {
	lines := strings.Split(page, "\n")
	next, whole, cluster := block{}, "", false
	for i := 0; i < len(lines); i++ {
		if found := directive.FindStringSubmatch(lines[i]); found != nil {
			text := found[1]
			for begin := i; found[2] == "" && strings.TrimSpace(lines[i]) != "-->"; text += "\n" + strings.TrimSpace(lines[i]) {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("%s:%d: the comment does not end", name, begin+1)
				}
			}
			if reason, ok := strings.CutPrefix(text, "page not run: "); ok {
				whole = reason
				continue
			}
			if text == "page cluster" {
				cluster = true
				continue
			}
			if err := next.direct(strings.TrimSuffix(text, "\n-->")); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
			}
			continue
		}
		found := fence.FindStringSubmatch(lines[i])
		if found == nil {
			continue
		}
		next.page, next.line, next.info, next.cluster = name, i+1, found[2], cluster
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			next.text += strings.TrimPrefix(lines[i], found[1]) + "\n"
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%s: the block does not end", next)
		}
		if next.reason == "" {
			next.reason = whole
		}
		blocks, next = append(blocks, next), block{}
	}
	return blocks, nil
}

// direct reads a directive of the block.
func (b *block) direct(text string) (err error) {
	kind, rest, _ := strings.Cut(text, " ")
	switch {
	case strings.HasPrefix(text, "not run: "):
		b.reason = strings.TrimPrefix(text, "not run: ")
	case strings.HasPrefix(text, "background until "):
		b.background = strings.TrimPrefix(text, "background until ")
	case kind == "exits":
		b.exits, err = strconv.Atoi(rest)
	case kind == "prints":
		b.prints = append(b.prints, rest)
	case kind == "file":
		b.file = rest
	case strings.HasPrefix(text, "before\n"):
		b.before += strings.TrimPrefix(text, "before\n") + "\n"
	default:
		err = fmt.Errorf("unknown directive %q", text)
	}
	return err
}

// pages are the pages whose commands are run.
func pages(t *testing.T) (names []string) {
	t.Helper()
	names = []string{"README.md"}
	for _, pattern := range []string{"docs/tutorials/*.md", "docs/guides/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		for _, name := range found {
			names = append(names, filepath.ToSlash(strings.TrimPrefix(name, "../../")))
		}
	}
	return names
}

func read(t *testing.T, name string) []block {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parse(name, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// program is what commands of the pages begin with.
var program = regexp.MustCompile(`^(sudo|holdfast|bin/\w+|make|kubectl|helm|aws|docker|podman|systemctl|go|git|cp|mv|mkdir|cd|ctr|export|sed|grep|install\.cmd|GOOS=\w+) `)

// TestPages_everyCommandIsRunOrSaysWhyNot finds commands in blocks that are not
// marked as such, and lists those that do not run.
func TestPages_everyCommandIsRunOrSaysWhyNot(t *testing.T) {
	ran := 0
	for _, name := range pages(t) {
		for _, b := range read(t, name) {
			switch {
			case b.runs():
				ran++
			case b.reason != "":
				t.Logf("not run: %s: %s", b, b.reason)
			case b.info == "" && program.MatchString(b.text):
				t.Errorf("%s: the block has commands: mark it with sh", b)
			}
		}
	}
	if ran == 0 {
		t.Error("no block runs")
	}
	t.Logf("%d blocks run", ran)
}

func TestParse(t *testing.T) {
	const page = "# Page\n```sh\none\n```\n" +
		"<!-- test-docs: not run: no network -->\n```sh\ntwo\n```\n" +
		"1. Item:\n\n   <!-- test-docs: background until ls -->\n   <!-- test-docs: prints a word -->\n   <!-- test-docs: exits 4 -->\n   ```console\n   # three\n   output\n   # four\n   ```\n" +
		"<!-- test-docs: before\necho 1\necho 2\n-->\n<!-- test-docs: file a/b.go -->\n```go\npackage b\n```\n```\noutput\n```\n"
	got, err := parse("p", page)
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{page: "p", line: 2, info: "sh", text: "one\n"},
		{page: "p", line: 6, info: "sh", text: "two\n", reason: "no network"},
		{page: "p", line: 14, info: "console", text: "# three\noutput\n# four\n", background: "ls", exits: 4, prints: []string{"a word"}},
		{page: "p", line: 24, info: "go", text: "package b\n", file: "a/b.go", before: "echo 1\necho 2\n"},
		{page: "p", line: 27, text: "output\n"},
	}
	if !slices.EqualFunc(got, want, func(a, b block) bool { return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) }) {
		t.Errorf("got\n%#v\nwant\n%#v", got, want)
	}
	if text := got[2].commands(); text != "three\nfour\n" {
		t.Errorf("commands of a console: %q", text)
	}
	if clusters, err := parse("p", "<!-- test-docs: page cluster -->\n```sh\none\n```\n"); err != nil || len(clusters) != 1 || !clusters[0].cluster || !clusters[0].runs() {
		t.Errorf("a page for a cluster: %#v, %v", clusters, err)
	}
	whole, err := parse("p", "<!-- test-docs: page not run: no Windows -->\n```sh\none\n```\n")
	if err != nil || len(whole) != 1 || whole[0].runs() || whole[0].reason != "no Windows" {
		t.Errorf("a page that is not run: %#v, %v", whole, err)
	}
	for _, bad := range []string{"```sh\nendless\n", "<!-- test-docs: never -->\n```\n```\n", "<!-- test-docs: before\nx\n", "<!-- test-docs: exits x -->\n```sh\n```\n"} {
		if _, err := parse("p", bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
