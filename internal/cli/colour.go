package cli

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/status"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// painter colours words on a terminal. It adds nothing but escape sequences: widths are
// those of the bare words.
type painter struct{ on bool }

// painterOf returns the painter of an output.
func painterOf(out io.Writer) painter {
	file, ok := out.(*os.File)
	return painter{on: wantsColour(os.Getenv, ok && term.IsTerminal(int(file.Fd())))}
}

// wantsColour follows https://no-color.org and https://bixense.com/clicolors. Windows has
// terminals that show escape sequences as they are, so that it needs CLICOLOR_FORCE.
func wantsColour(environment func(string) string, terminal bool) bool {
	forced := environment("CLICOLOR_FORCE")
	switch {
	case environment("NO_COLOR") != "":
		return false
	case forced != "" && forced != "0":
		return true
	case environment("TERM") == "dumb", environment("CLICOLOR") == "0", runtime.GOOS == "windows":
		return false
	}
	return terminal
}

// The parameters of escape sequences (ECMA-48, SGR).
const (
	sgrBold   = "1"
	sgrRed    = "31"
	sgrGreen  = "32"
	sgrYellow = "33"
)

func (p painter) paint(parameter, text string) string {
	if !p.on || parameter == "" || text == "" {
		return text
	}
	return "\x1b[" + parameter + "m" + text + "\x1b[0m"
}

// heading marks a headline or a label.
func (p painter) heading(text string) string { return p.paint(sgrBold, text) }

// level colours a word that says how something is.
func (p painter) level(level status.Level, text string) string {
	return p.paint(map[status.Level]string{status.Good: sgrGreen, status.Busy: sgrYellow, status.Bad: sgrRed}[level], text)
}

// answer colours the first line of why.
func (p painter) answer(state why.State, text string) string {
	return p.level(map[why.State]status.Level{
		why.Fine: status.Good, why.Waits: status.Busy, why.Stuck: status.Bad, why.Unknown: status.Bad}[state], text)
}

// headings is the paint of a table's first row.
func (p painter) headings(_ int, cell string) string { return p.heading(cell) }

// drivers is the paint of a row of 'get drivers'.
func (p painter) drivers(column int, cell string) string {
	if column != driverStateColumn {
		return cell
	}
	switch cell {
	case string(plugins.StateRegistered):
		return p.level(status.Good, cell)
	case stateNotReady, string(plugins.StateFailed):
		return p.level(status.Bad, cell)
	case noneText:
		return cell
	}
	return p.level(status.Busy, cell)
}

// cells returns the paint of an object's row: its status has the colour of its level.
func (p painter) cells(columns []column, object store.Object) paint {
	return func(at int, cell string) string {
		if !columns[at].isStatus() {
			return cell
		}
		return p.level(status.LevelOf(object), cell)
	}
}
