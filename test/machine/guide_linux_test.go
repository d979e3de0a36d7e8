//go:build machine

package machine

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// guideStep is a block of a guide: a file's content, or commands.
type guideStep struct{ file, content, commands string }

var (
	guideSection = regexp.MustCompile(`(?m)^## (.*)$`)
	guideBlock   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
)

// guideSteps are the blocks of a page before its first section and in the named
// ones, in the page's order. A block of another kind than console has the path of its
// file in a comment on its first line.
func guideSteps(page string, sections ...string) (steps []guideStep) {
	bounds := guideSection.FindAllStringSubmatchIndex(page, -1)
	begin, name := 0, ""
	for i := range len(bounds) + 1 {
		end := len(page)
		if i < len(bounds) {
			end = bounds[i][0]
		}
		if name == "" || slices.Contains(sections, name) {
			for _, block := range guideBlock.FindAllStringSubmatch(page[begin:end], -1) {
				steps = append(steps, asStep(block[1], block[2]))
			}
		}
		if i < len(bounds) {
			begin, name = bounds[i][1], page[bounds[i][2]:bounds[i][3]]
		}
	}
	return steps
}

func asStep(kind, text string) guideStep {
	if kind != "console" {
		file, content, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		return guideStep{file: file, content: content}
	}
	var commands strings.Builder
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "# "); ok {
			commands.WriteString(command)
		}
	}
	return guideStep{commands: commands.String()}
}

// followSections writes the files and runs the commands of a guide's sections as they
// are written, with an image for IMAGE.
func (l *lab) followSections(guide, image string, sections ...string) {
	l.t.Helper()
	page, err := os.ReadFile(filepath.Join("../../docs/guides", guide))
	l.must(err)
	steps := guideSteps(strings.ReplaceAll(string(page), "IMAGE", image), sections...)
	if len(steps) <= len(sections) {
		l.t.Fatalf("%s has %d blocks in the sections %q", guide, len(steps), sections)
	}
	for _, s := range steps {
		if s.file != "" {
			file := s.file
			if !path.IsAbs(file) {
				file = path.Join(project, file)
			}
			l.put(file, s.content)
			continue
		}
		l.t.Logf("the guide:\n%s%s", s.commands, l.shell("cd %s\n%s", project, s.commands))
	}
}
