package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

func TestProgress_oneLinePerStepWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.say("notice")
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Started})
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Retrying, Err: errors.New("busy")})
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Done, Detail: "1Gi", Took: 12340 * time.Microsecond})
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepStage, Status: volumes.Failed, Err: errors.New("no"), Took: 2 * time.Second})
	p.close()
	want := "notice\nclaim ns/a: create: not yet, trying again: busy\nclaim ns/a: create 1Gi 12.3 ms\nclaim ns/a: stage: failed after 2.0 s\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// screen is a terminal, with the sequences that the display uses.
func screen(t *testing.T, written string) []string {
	t.Helper()
	var lines []string
	row := 0
	for written != "" {
		switch {
		case strings.HasPrefix(written, "\x1b["):
			end := strings.IndexAny(written, "AJK")
			number := 0
			for _, digit := range written[2:end] {
				number = number*10 + int(digit-'0')
			}
			switch written[end] {
			case 'A':
				row -= number
			case 'J':
				lines = lines[:row]
			case 'K':
				if row < len(lines) {
					lines[row] = ""
				}
			}
			written = written[end+1:]
		case written[0] == '\n':
			row++
			written = written[1:]
		case written[0] == '\r':
			written = written[1:]
		default:
			end := strings.IndexAny(written, "\x1b\n\r")
			for len(lines) <= row {
				lines = append(lines, "")
			}
			lines[row] += written[:end]
			written = written[end:]
		}
		if row < 0 {
			t.Fatal("the display went above its first line")
		}
	}
	return lines
}

func TestProgress_oneLivingLinePerVolumeOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.columns = func() int { return 60 }
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Started})
	p.observe(volumes.Event{Volume: "claim ns/b", Step: volumes.StepCreate, Status: volumes.Started})
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Done, Took: time.Millisecond})
	p.say("a line of the log")
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepStage, Status: volumes.Done, Took: 2 * time.Millisecond})
	p.observe(volumes.Event{Volume: "claim ns/b", Step: volumes.StepCreate, Status: volumes.Retrying, Err: errors.New(strings.Repeat("very ", 20) + "busy")})
	got := screen(t, out.String())
	if len(got) != 3 || got[0] != "a line of the log" || got[1] != "claim ns/a: create 1.0 ms, stage 2.0 ms" ||
		!strings.HasPrefix(got[2], "claim ns/b: create… ") || !strings.HasSuffix(got[2], "…") || len([]rune(got[2])) > 59 {
		t.Errorf("the screen shows %q", got)
	}
	p.keep()
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepUnpublish, Status: volumes.Done, Took: time.Millisecond})
	if got := screen(t, out.String()); len(got) != 4 || got[3] != "claim ns/a: unpublish 1.0 ms" {
		t.Errorf("after the workload the screen shows %q", got)
	}
	p.close()
}
