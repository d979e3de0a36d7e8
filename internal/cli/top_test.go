package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/top"
)

// activityAt is a sample of two volumes: one reads 2 MiB in 4 requests a second, the other
// is idle and has no block device.
func activityAt(second int) top.Sample {
	available, count := int64(3<<30), uint64(second) //nolint:gosec // small
	days := int64(3 * 24 * 3600)
	activity := api.Activity{
		At: time.Date(2026, 1, 2, 3, 4, second, 0, time.Local),
		Volumes: []api.VolumeActivity{
			{Volume: "pvc-1", Driver: "local.example", Handle: "1", Claim: "default/data", Pods: []string{"default/web"}, Device: "loop1",
				Counters: &api.Counters{Reads: 4 * count, ReadBytes: count * 2 << 20, ReadTime: time.Duration(second) * 8 * time.Millisecond, BusyTime: time.Duration(second) * 256 * time.Millisecond},
				Bytes:    &api.Usage{Total: 1 << 30, Used: 1 << 29, Available: 1 << 29}},
			{Volume: "pvc-2", Driver: "nfs.example", Handle: "2", Claim: "other/share\x1b[2J", Pods: []string{}},
		},
		Drivers: []api.DriverActivity{
			{Name: "local.example", State: "Registered", Volumes: 7, Promised: 10 << 30, Available: &available},
			{Name: "nfs.example", State: "Away"},
		},
	}
	return top.Sample{Activity: activity, Pools: []api.Pool{
		{Driver: "local.example", Name: "/pool\x1b", Size: 8 << 30, Available: 3 << 30, Promised: 10 << 30, FullSeconds: &days},
		{Driver: "local.example", Name: "/lost"},
	}}
}

func TestTop_printsTables(t *testing.T) {
	var out bytes.Buffer
	c := topConfig{key: top.SortIO, once: true}
	if err := c.printOne(&out, top.New(activityAt(1), activityAt(3))); err != nil {
		t.Fatal(err)
	}
	want := `03:04:03  2 volumes of 2 mounted shown  read 2.0 MiB/s  write 0 B/s  4.0 requests/s

DRIVER          STATE        VOLUMES   MOUNTED   READ/S    WRITE/S   REQUESTS/S   LATENCY   PROMISED   AVAILABLE
local.example   Registered   7         1         2.0 MiB   0 B       4.0          2.0 ms    10.0 GiB   3.0 GiB
nfs.example     Away         0         1         0 B       0 B       0            -         0 B        -

POOL     SIZE      USED   AVAILABLE   PROMISED   FULL IN
/pool�   8.0 GiB   62 %   3.0 GiB     10.0 GiB   3d
/lost    -         -      -           -          -

NAMESPACE   NAME        DEVICE   READ/S    WRITE/S   READS/S   WRITES/S   READ LATENCY   WRITE LATENCY   BUSY   USED   SIZE
default     data        loop1    2.0 MiB   0 B       4.0       0          2.0 ms         -               25 %   50 %   1.0 GiB
other       share�[2J   -        -         -         -         -          -              -               -      -      -
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestTop_selectsBeforeItPrints(t *testing.T) {
	var out bytes.Buffer
	c := topConfig{key: top.SortIO, output: outputJSON}
	c.namespace = "other"
	if err := c.printOne(&out, top.New(activityAt(1), activityAt(3))); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "loop1") || !strings.Contains(text, `"name":"share`) {
		t.Errorf("got %s", text)
	}
}

// pressed is the state after keys, each as bubbletea names it.
func pressed(t *testing.T, view topView, keys ...string) topView {
	t.Helper()
	special := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "backspace": {Code: tea.KeyBackspace},
		"down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp}, "pgdown": {Code: tea.KeyPgDown}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	for _, key := range keys {
		message, known := special[key]
		if !known {
			message = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		}
		next, _ := view.Update(message)
		view, _ = next.(topView)
	}
	return view
}

func liveView(t *testing.T) topView {
	t.Helper()
	view := newTopView(topConfig{key: top.SortIO, interval: time.Second}, activityAt(1), func() (top.Sample, error) { return activityAt(3), nil })
	next, _ := view.Update(tea.WindowSizeMsg{Width: 140, Height: 20})
	view, _ = next.(topView)
	_, ask := view.Update(due{})
	next, again := view.Update(ask())
	if view, _ = next.(topView); again == nil {
		t.Fatal("no further sample is taken")
	}
	return view
}

func TestTopView_showsRatesAndFollowsKeys(t *testing.T) {
	view := liveView(t)
	if text := view.text(); !strings.Contains(text, "2.0 MiB/s") || !strings.Contains(text, "sort: io") || strings.Contains(text, "\x1b[2J") {
		t.Errorf("the screen shows\n%s", text)
	}
	names := func(view topView) string {
		var all []string
		for _, volume := range view.selected() {
			all = append(all, strings.Fields(printable(volume.Name))[0])
		}
		return strings.Join(all, " ")
	}
	const data, share = "data", "share�[2J"
	for _, test := range []struct {
		keys []string
		want string
	}{
		{nil, data + " " + share},
		{[]string{"n"}, data},
		{[]string{"n", "n"}, share},
		{[]string{"n", "n", "n"}, data + " " + share},
		{[]string{"/", "s", "h", "q", "backspace", "enter"}, share},
		{[]string{"/", "s", "h", "esc"}, data + " " + share},
		{[]string{"/", "w", "e", "b", "enter", "s"}, data},
	} {
		if got := names(pressed(t, view, test.keys...)); got != test.want {
			t.Errorf("after %q there is %q, want %q", test.keys, got, test.want)
		}
	}
	keys := top.Keys()
	if got := pressed(t, view, "s").config.key; got != keys[1] {
		t.Errorf("s sorts by %s", got)
	}
	if got := pressed(t, view, "S").config.key; got != keys[len(keys)-1] {
		t.Errorf("S sorts by %s", got)
	}
	if typing := pressed(t, view, "/", "x").text(); !strings.Contains(typing, "filter: x") {
		t.Errorf("while a filter is typed the screen shows\n%s", typing)
	}
}

func TestTopView_ends(t *testing.T) {
	view := liveView(t)
	for _, keys := range [][]string{{"q"}, {"esc"}, {"ctrl+c"}, {"/", "ctrl+c"}} {
		before := pressed(t, view, keys[:len(keys)-1]...)
		message := map[string]tea.KeyPressMsg{"q": {Code: 'q', Text: "q"}, "esc": {Code: tea.KeyEscape}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}}[keys[len(keys)-1]]
		_, command := before.Update(message)
		if command == nil {
			t.Errorf("%q does not end it", keys)
			continue
		}
		if _, quits := command().(tea.QuitMsg); !quits {
			t.Errorf("%q does not end it", keys)
		}
	}
}

func TestTopView_fitsTheScreenAndScrolls(t *testing.T) {
	many := activityAt(1)
	many.Volumes = nil
	for i := range 100 {
		many.Volumes = append(many.Volumes, api.VolumeActivity{Volume: fmt.Sprintf("pvc-%02d", i), Claim: fmt.Sprintf("default/c%02d", i), Handle: fmt.Sprint(i), Pods: []string{}})
	}
	view := newTopView(topConfig{key: top.SortName, interval: time.Second}, many, nil)
	for _, size := range []tea.WindowSizeMsg{{Width: 120, Height: 30}, {Width: 40, Height: 12}, {Width: 10, Height: 5}, {Width: 1, Height: 1}, {}} {
		next, _ := view.Update(size)
		view, _ = next.(topView)
		for _, keys := range [][]string{nil, {"down"}, {"pgdown", "pgdown"}, {"up", "up"}, slices.Repeat([]string{"pgdown"}, 40)} {
			shown := strings.Split(pressed(t, view, keys...).text(), "\n")
			if len(shown) > max(1, size.Height) {
				t.Errorf("%d lines on a screen of %d", len(shown), size.Height)
			}
			for _, line := range shown {
				for _, style := range []string{styleBold, styleReverse, styleRed, styleNone} {
					line = strings.ReplaceAll(line, style, "")
				}
				if width := len([]rune(line)); width > size.Width {
					t.Errorf("a line of %d on a screen of %d: %q", width, size.Width, line)
				}
			}
		}
	}
	next, _ := view.Update(tea.WindowSizeMsg{Width: 120, Height: 30})
	view, _ = next.(topView)
	if text := pressed(t, view, "down", "down").text(); strings.Contains(text, "c01 ") || !strings.Contains(text, "c02 ") {
		t.Errorf("after two lines down the screen shows\n%s", text)
	}
}

func TestTopView_keepsTheLastFiguresWhileTheHostDoesNotAnswer(t *testing.T) {
	view := liveView(t)
	next, again := view.Update(sampled{err: errors.New("no host is running\x1b")})
	view, _ = next.(topView)
	text := view.text()
	if again == nil || !strings.Contains(text, "no new figures: no host is running") || !strings.Contains(text, "data") {
		t.Errorf("the screen shows\n%s", text)
	}
}

func TestTop_refusesWrongFlags(t *testing.T) {
	for _, arguments := range [][]string{{"--sort=size"}, {"-o", "yaml"}, {"--interval=1ms"}, {"x"}} {
		var stdout, stderr bytes.Buffer
		if code := Run(t.Context(), "", append([]string{"top", "--root", t.TempDir()}, arguments...), &stdout, &stderr); code != exitUsage {
			t.Errorf("%q ends with %d: %s", arguments, code, stderr.String())
		}
	}
}
