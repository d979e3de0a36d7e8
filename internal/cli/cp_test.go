package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

func TestCopyPlace(t *testing.T) {
	c := copyConfig{hostClient: hostClient{namespace: "shop"}}
	for word, want := range map[string]copyPlace{
		"web:/srv":       {"shop", "web", "/srv"},
		"prod/web:/srv":  {"prod", "web", "/srv"},
		"web:a:b":        {"shop", "web", "a:b"},
		"web:.":          {"shop", "web", "."},
		"./web:/srv":     {path: "./web:/srv"},
		"/tmp/web:/srv":  {path: "/tmp/web:/srv"},
		"../web:/srv":    {path: "../web:/srv"},
		"file":           {path: "file"},
		"-":              {path: "-"},
		"directory/file": {path: "directory/file"},
		".":              {path: "."},
	} {
		if got, err := c.place(word); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", word, got, err, want)
		}
	}
	for _, word := range []string{"", "web:", ":/srv", "a/b/web:/srv", "a%b:/srv", "/web:"} {
		if got, err := c.place(word); err == nil && got.pod != "" || word == "" && err == nil {
			t.Errorf("%q is %+v", word, got)
		}
	}
}

func TestTopOf(t *testing.T) {
	for source, want := range map[string]string{
		"/srv/data": "data", "/srv/data/": "data", "file": "file", "./a/b": "b", "/srv/data/.": ".", ".": ".", "/": ".", "..": ".", "a/..": ".",
		"/srv/../etc": "etc",
	} {
		if got := topOf(source); got != want {
			t.Errorf("%q has the name %q, want %q", source, got, want)
		}
	}
}

func TestLineSplitter_boundsALine(t *testing.T) {
	var got []string
	l := &lineSplitter{each: func(line string) { got = append(got, line) }}
	for _, part := range []string{"a\nb", "c\n", strings.Repeat("x", maximumWarning), "rest"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	if len(got) != 3 || got[0] != "a" || got[1] != "bc" || len(got[2]) != maximumWarning {
		t.Errorf("got %d lines: %.20q", len(got), got)
	}
}

func TestCopyDisplay(t *testing.T) {
	var out bytes.Buffer
	d := newCopyDisplay(&out)
	d.total.Store(4 << 20)
	d.add(1 << 20)
	d.mu.Lock()
	now := time.Now()
	d.show(d.meter.Observe(now, progress.Operation{Doing: "copying", Done: d.done.Load(), Total: d.total.Load(), Unit: progress.Bytes}))
	d.terminal = true
	d.show(d.meter.Observe(now.Add(time.Second), progress.Operation{Doing: "copying", Done: 2 << 20, Total: d.total.Load(), Unit: progress.Bytes}))
	d.mu.Unlock()
	for i := range mostWarnings + 7 {
		d.say(fmt.Sprint("Warning: ", i))
	}
	d.close()
	text := out.String()
	for _, want := range []string{
		"copying 1.0 of 4.0 MiB\n", "\r\x1b[K[██████████░░░░░░░░░░]  50 % copying 2.0 of 4.0 MiB, 1.0 MiB/s, 2s left", "\r\x1b[KWarning: 0\n",
		"Warning: 19\nWarning: 7 more are left out\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in %q", want, text)
		}
	}
}
