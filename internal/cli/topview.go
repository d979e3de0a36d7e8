package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/top"
)

// live shows the tables on a terminal until the user ends that.
func (c *topConfig) live(ctx context.Context, in, out *os.File, client *api.Client, first top.Sample) error {
	view := newTopView(*c, first, func() (top.Sample, error) { return c.sample(ctx, client) })
	_, err := tea.NewProgram(view, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		err = nil // the user ended it
	}
	return err
}

// topView is the state of the live tables. Update returns the next state, and View draws
// it.
type topView struct {
	config   topConfig
	sample   func() (top.Sample, error)
	before   top.Sample
	report   top.Report
	failure  error // of the last sample
	typing   bool  // the filter is being typed
	filter   string
	scrolled int
	width    int
	height   int
}

func newTopView(config topConfig, first top.Sample, sample func() (top.Sample, error)) topView {
	return topView{
		config: config, sample: sample, before: first, report: top.New(top.Sample{}, first), filter: config.filter,
		width: 80, height: 24,
	}
}

// sampled is a new sample, due the time for one.
type (
	sampled struct {
		sample top.Sample
		err    error
	}
	due struct{}
)

func (v topView) wait() tea.Cmd {
	return tea.Tick(v.config.interval, func(time.Time) tea.Msg { return due{} })
}

// Init implements tea.Model.
func (v topView) Init() tea.Cmd { return v.wait() }

// Update implements tea.Model.
func (v topView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = message.Width, message.Height
	case tea.KeyPressMsg:
		return v.press(message)
	case due:
		return v, func() tea.Msg {
			sample, err := v.sample()
			return sampled{sample, err}
		}
	case sampled:
		if v.failure = message.err; message.err == nil {
			v.report, v.before = top.New(v.before, message.sample), message.sample
		}
		return v, v.wait()
	}
	return v, nil
}

func (v topView) press(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	if key.String() == "ctrl+c" {
		return v, tea.Quit
	}
	if v.typing {
		return v.typed(key), nil
	}
	page := max(1, v.room())
	switch key.String() {
	case "q", "esc":
		return v, tea.Quit
	case "s":
		v.config.key = neighbour(top.Keys(), v.config.key, 1)
	case "S":
		v.config.key = neighbour(top.Keys(), v.config.key, -1)
	case "n":
		v.config.namespace = neighbour(v.namespaces(), v.config.namespace, 1)
	case "/":
		v.typing = true
	case "up", "k":
		v.scrolled--
	case "down", "j":
		v.scrolled++
	case "pgup":
		v.scrolled -= page
	case "pgdown", "space":
		v.scrolled += page
	case "home", "g":
		v.scrolled = 0
	}
	v.scrolled = max(0, min(v.scrolled, len(v.selected())-1))
	return v, nil
}

// typed edits the filter. Enter ends that, and escape removes the filter.
func (v topView) typed(key tea.KeyPressMsg) topView {
	switch key.String() {
	case "enter":
		v.typing = false
	case "esc":
		v.typing, v.filter = false, ""
	case "backspace":
		if runes := []rune(v.filter); len(runes) > 0 {
			v.filter = string(runes[:len(runes)-1])
		}
	default:
		v.filter += key.Text
	}
	v.scrolled = 0
	return v
}

// neighbour is the one that is so many places behind current, and the first after the last.
func neighbour[T comparable](all []T, current T, by int) T {
	at := slices.Index(all, current) + by
	return all[(at+len(all))%len(all)]
}

// namespaces are those of the volumes, after "" for all.
func (v topView) namespaces() []string {
	names := []string{""}
	for _, volume := range v.report.Volumes {
		names = append(names, volume.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (v topView) selected() []top.Volume {
	return v.report.Select(v.config.namespace, v.filter, v.config.key)
}

// View implements tea.Model.
func (v topView) View() tea.View {
	view := tea.NewView(v.text())
	view.AltScreen = true
	view.WindowTitle = "holdfast top"
	return view
}

// The styles are those of every terminal, dark and light; without colours, as with
// NO_COLOR, they are left out.
const (
	styleBold    = "\x1b[1m"
	styleReverse = "\x1b[7m"
	styleRed     = "\x1b[31m"
	styleNone    = "\x1b[0m"
)

func (v topView) text() string {
	tables := topTables{report: v.report, volumes: v.selected()}
	text := []string{styleBold + v.clip(tables.heading()) + styleNone, ""}
	text = append(text, v.table(tables.drivers(), len(v.report.Drivers))...)
	text = append(text, "")
	if pools := len(v.report.Pools); pools > 0 {
		text = append(append(text, v.table(tables.pools(), pools)...), "")
	}
	rows := tables.rows()
	rows = append(rows[:1:1], rows[min(1+v.scrolled, len(rows)):]...)
	text = append(text, v.table(rows, v.room())...)
	for len(text) < v.height-1 {
		text = append(text, "")
	}
	return strings.Join(append(text[:max(0, v.height-1)], v.foot()), "\n")
}

// room is how many volumes fit on the screen.
func (v topView) room() int {
	others := 6 + len(v.report.Drivers) // heading, two headers, two empty lines, foot
	if pools := len(v.report.Pools); pools > 0 {
		others += 2 + pools
	}
	return max(0, v.height-others)
}

// table has a header and at most so many rows.
func (v topView) table(rows [][]string, most int) []string {
	all := strings.Split(strings.TrimSuffix(alignedText(rows), "\n"), "\n")
	all = all[:min(len(all), 1+most)]
	for i := range all {
		all[i] = v.clip(all[i])
	}
	all[0] = styleReverse + all[0] + strings.Repeat(" ", max(0, v.width-len([]rune(all[0])))) + styleNone
	return all
}

func (v topView) clip(line string) string {
	if runes := []rune(line); len(runes) > v.width {
		return string(runes[:max(0, v.width)])
	}
	return line
}

// foot says what is shown, and the keys.
func (v topView) foot() string {
	if v.typing {
		return v.clip("filter: " + v.filter + "▏ enter: done, esc: no filter")
	}
	if v.failure != nil {
		return styleRed + v.clip("no new figures: "+printable(v.failure.Error())) + styleNone
	}
	namespace := v.config.namespace
	if namespace == "" {
		namespace = "all"
	}
	foot := fmt.Sprintf("q quit  s sort: %s  n namespace: %s  / filter", v.config.key, namespace)
	if v.filter != "" {
		foot += ": " + v.filter
	}
	return v.clip(foot + fmt.Sprintf("  every %s", v.config.interval))
}
