package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

func TestProgress_oneLinePerStepWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newDisplay(&out)
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
	p := newDisplay(&out)
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

func TestDisplay_ofALongStepWithoutATerminalIsALineEveryTenSeconds(t *testing.T) {
	var out bytes.Buffer
	p := newDisplay(&out)
	step := func(seconds int, done int64) {
		event := volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Took: time.Duration(seconds) * time.Second}
		if done > 0 {
			event.Progress = &progress.State{Doing: "copying", Done: done << 20, Total: 100 << 20, Unit: progress.Bytes, Rate: 1 << 20,
				Left: time.Duration(100-done) * time.Second}
		}
		p.observe(event)
	}
	step(0, 0)
	for second := 1; second <= 25; second++ {
		step(second, int64(second))
	}
	step(0, 0) // another attempt
	step(11, 50)
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Done, Detail: "1Gi", Took: 30 * time.Second})
	p.close()
	want := `claim ns/a: create: copying 10.0 of 100.0 MiB, 1.0 MiB/s, 1m30s left (10.0 s so far)
claim ns/a: create: copying 20.0 of 100.0 MiB, 1.0 MiB/s, 1m20s left (20.0 s so far)
claim ns/a: create: copying 50.0 of 100.0 MiB, 1.0 MiB/s, 50s left (11.0 s so far)
claim ns/a: create 1Gi 30.0 s
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestDisplay_ofALongStepOnATerminalIsABar(t *testing.T) {
	var out bytes.Buffer
	p := newDisplay(&out)
	p.columns = func() int { return 120 }
	at := func(done, total int64) string {
		p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Took: 61 * time.Second,
			Progress: &progress.State{Doing: "copying\x1b[2J", Done: done, Total: total, Unit: progress.Bytes}})
		return screen(t, out.String())[0]
	}
	for want, got := range map[string]string{
		"claim ns/a: create… 1m1s [█████░░░░░░░░░░░░░░░]  25 % copying\ufffd[2J 25 of 100 B":   at(25, 100),
		"claim ns/a: create… 1m1s [███████████████████░]  99 % copying\ufffd[2J 999 of 1000 B": at(999, 1000),
		"claim ns/a: create… 1m1s [████████████████████] 100 % copying\ufffd[2J 100 of 100 B":  at(100, 100),
		"claim ns/a: create… 1m1s copying\ufffd[2J 5 B": at(5, 0),
	} {
		if got != want {
			t.Errorf("the screen shows %q, want %q", got, want)
		}
	}
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Done, Took: time.Minute})
	if got := screen(t, out.String())[0]; got != "claim ns/a: create 1m0s" {
		t.Errorf("after the step, the screen shows %q", got)
	}
	p.close()
}

// The command ends after the end of a step was shown, though the effect was seen before.
func TestDisplay_settles(*testing.T) {
	p := newDisplay(&bytes.Buffer{})
	p.settle(time.Hour) // nothing runs
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate})
	p.settle(time.Millisecond) // the limit
	settled := make(chan struct{})
	go func() { defer close(settled); p.settle(time.Hour) }()
	p.observe(volumes.Event{Volume: "claim ns/a", Step: volumes.StepCreate, Status: volumes.Done})
	<-settled
	p.close()
}
