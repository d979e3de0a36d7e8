package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const commandsPage = "../../docs/reference/commands.md"

// ownPages are the commands whose flags have pages of their own, which other tests check.
func ownPages() map[string]string {
	return map[string]string{
		"holdfast driver": "[driver](driver.md), [kubernetes](kubernetes.md)", "holdfast sidecars": "[sidecars](sidecars.md)",
	}
}

// visible returns a command and those below it, without the hidden ones.
func visible(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, sub := range command.Commands() {
		if !sub.Hidden {
			all = append(all, visible(sub)...)
		}
	}
	return all
}

// tableOf is the table of all commands with their flags, sorted by name.
func tableOf(root *cobra.Command) string {
	var rows []string
	for _, command := range visible(root) {
		var flags []string
		command.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name = "`-" + f.Shorthand + "` " + name
			}
			flags = append(flags, name)
		})
		text := strings.Join(flags, ", ")
		if page, ok := ownPages()[command.CommandPath()]; ok {
			text = page
		}
		rows = append(rows, strings.TrimSuffix("| `"+command.CommandPath()+"` | "+text, " ")+" |\n")
	}
	slices.Sort(rows)
	return "| Command | Flags |\n| --- | --- |\n" + strings.Join(rows, "")
}

// TestCommandsPage_namesEveryCommandAndFlag compares the page with the commands, in both
// directions.
func TestCommandsPage_namesEveryCommandAndFlag(t *testing.T) {
	root := NewRoot("test")
	written(t, commandsPage, "commands", tableOf(root))
	text := documentation(t)[commandsPage]
	before, after, _ := strings.Cut(text, "<!-- commands: begin")
	_, after, _ = strings.Cut(after, "<!-- commands: end")
	for _, words := range regexp.MustCompile("`holdfast ([a-z][a-z -]*)").FindAllStringSubmatch(before+after, -1) {
		line := strings.Fields(words[1])
		if found, _, err := root.Find(line); err != nil || found == root {
			t.Errorf("docs/reference/commands.md: 'holdfast %s' is not a command", words[1])
		}
	}
	for _, command := range root.Commands() {
		if name := command.Name(); !command.Hidden && name != "version" &&
			!regexp.MustCompile("`(holdfast )?"+name+"\\b").MatchString(before) {
			t.Errorf("docs/reference/commands.md does not say what %q does", name)
		}
	}
}

// TestPages_nameCommandsThatExist checks every 'holdfast COMMAND' in code spans and
// command lines of the documentation.
func TestPages_nameCommandsThatExist(t *testing.T) {
	root := NewRoot("test")
	root.InitDefaultCompletionCmd()
	shape := regexp.MustCompile("(?m)(?:`|^# |^\\$ |^sudo |^# sudo )holdfast ([a-z][a-z-]*)")
	for name, text := range documentation(t) {
		for _, words := range shape.FindAllStringSubmatch(text, -1) {
			if found, _, err := root.Find(words[1:2]); err != nil || found == root {
				t.Errorf("%s: 'holdfast %s' is not a command", name, words[1])
			}
		}
	}
}

// TestPages_nameTheExitCodesOfWhy checks the sentences and the table that have them.
func TestPages_nameTheExitCodesOfWhy(t *testing.T) {
	if !strings.Contains(whyHelp, "The exit code is 0 if it finds no reason to wait, 3 if the reason may end by\nitself, and 4 if a person has to act.") {
		t.Errorf("the help has not the exit codes:\n%s", whyHelp)
	}
	text := documentation(t)["../../docs/reference/why.md"]
	for _, row := range []string{
		"| 0 | `fine` |", "| 1 | `unknown`, or none |", "| 2 | |", "| 3 | `waits` |", "| 4 | `stuck` |",
	} {
		if !strings.Contains(text, row) {
			t.Errorf("docs/reference/why.md lacks %q", row)
		}
	}
}

// documentation has the pages, by their names.
func documentation(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pages[name] = string(text)
		}
	}
	return pages
}
