package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/status"
)

// redrawEvery is the interval of drawing a live display.
const redrawEvery = 100 * time.Millisecond

// display shows the steps of volumes: on a terminal one line per volume that
// lives until the workload starts, elsewhere one line per step. It is also the
// writer of the log, so that a log line does not tear the display.
type display struct {
	out     io.Writer
	columns func() int // nil when out is not a terminal

	mu      sync.Mutex
	lines   []*volumeLine
	drawn   int           // lines on the screen that belong to the display
	changed chan struct{} // closed and replaced by each step
	stop    chan struct{}
	stopped sync.WaitGroup
}

// volumeLine is one volume with its steps so far.
type volumeLine struct {
	volume  string
	done    []string
	running volumes.Step
	since   time.Time
	state   *progress.State // how far the running step is, if the driver says that
	shown   time.Duration   // how long the step ran when that was shown last, without a terminal
	trouble string
	failed  bool
}

func newDisplay(out io.Writer) *display {
	p := &display{out: out, stop: make(chan struct{}), changed: make(chan struct{})}
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return p
	}
	p.columns = func() int {
		columns, _, err := term.GetSize(int(file.Fd()))
		if err != nil || columns <= 0 {
			return 80
		}
		return columns
	}
	p.stopped.Go(p.tick)
	return p
}

func (p *display) tick() {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			p.mu.Lock()
			if p.isRunning() {
				p.draw()
			}
			p.mu.Unlock()
		}
	}
}

func (p *display) isRunning() bool {
	for _, line := range p.lines {
		if line.running != "" {
			return true
		}
	}
	return false
}

// close ends the live display.
func (p *display) close() {
	close(p.stop)
	p.stopped.Wait()
}

// keep leaves the shown lines on the screen; later steps start below.
func (p *display) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines, p.drawn = nil, 0
}

// say writes one line above the display.
func (p *display) say(text string) { _, _ = p.Write([]byte(text + "\n")) }

// Write writes whole lines above the display.
func (p *display) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	written, err := p.out.Write(data)
	p.draw()
	return written, err
}

// observe is called for each step, from several goroutines.
func (p *display) observe(event volumes.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.line(event.Volume)
	if text := line.plain(event); text != "" && p.columns == nil {
		_, _ = fmt.Fprintln(p.out, text) // a broken pipe does not stop the work
	}
	line.apply(event)
	p.draw()
	close(p.changed)
	p.changed = make(chan struct{})
}

// settle waits until no shown step runs, and for a limit at most: the end of a step is
// reported after its effect.
func (p *display) settle(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		p.mu.Lock()
		running, changed := p.isRunning(), p.changed
		p.mu.Unlock()
		if !running {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

func (p *display) line(volume string) *volumeLine {
	for _, line := range p.lines {
		if line.volume == volume {
			return line
		}
	}
	line := &volumeLine{volume: volume}
	p.lines = append(p.lines, line)
	return line
}

// sayEvery is the time between two lines about a long step without a terminal.
const sayEvery = 10 * time.Second

// plain is the line for an event; "" for a step that only starts.
func (l *volumeLine) plain(event volumes.Event) string {
	text := fmt.Sprintf("%s: %s", event.Volume, event.Step)
	if event.Progress == nil {
		l.shown = 0
	}
	switch event.Status {
	case volumes.Started:
		if event.Progress != nil && event.Took-l.shown >= sayEvery {
			l.shown = event.Took
			return fmt.Sprintf("%s: %s (%s so far)", text, printable(event.Progress.String()), duration(event.Took))
		}
	case volumes.Done:
		return text + detail(event) + " " + duration(event.Took)
	case volumes.Retrying:
		return fmt.Sprintf("%s: not yet, trying again: %s", text, client.Message(event.Err))
	case volumes.Failed:
		return fmt.Sprintf("%s: failed after %s", text, duration(event.Took)) // the error ends the command
	}
	return ""
}

func detail(event volumes.Event) string {
	if event.Detail == "" || event.Step == volumes.StepPublish || event.Step == volumes.StepDelete {
		return ""
	}
	return " " + event.Detail
}

func (l *volumeLine) apply(event volumes.Event) {
	l.running, l.trouble, l.state = "", "", nil
	switch event.Status {
	case volumes.Started:
		l.running, l.since, l.state = event.Step, time.Now().Add(-event.Took), event.Progress
	case volumes.Retrying:
		l.running, l.trouble = event.Step, client.Message(event.Err)
	case volumes.Done:
		l.done = append(l.done, string(event.Step)+detail(event)+" "+duration(event.Took))
	case volumes.Failed:
		l.failed = true
		l.done = append(l.done, string(event.Step)+" failed")
	}
}

// barWidth is the width of a bar between its brackets.
const barWidth = 20

// bar shows how much is done, if that is known.
func bar(so progress.State) string {
	fraction, known := so.Fraction()
	if !known {
		return ""
	}
	full := int(fraction * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f %% ", strings.Repeat("█", full), strings.Repeat("░", barWidth-full),
		math.Floor(100*fraction))
}

func (l *volumeLine) text() string {
	parts := l.done
	if l.running != "" {
		running := fmt.Sprintf("%s… %s", l.running, duration(time.Since(l.since)))
		if l.state != nil {
			running += " " + bar(*l.state) + printable(l.state.String())
		}
		if l.trouble != "" {
			running += " (" + strings.ReplaceAll(l.trouble, "\n", " ") + ")"
		}
		parts = append(parts[:len(parts):len(parts)], running)
	}
	return l.volume + ": " + strings.Join(parts, ", ")
}

// draw replaces the display. It truncates lines to the width of the terminal: a line
// that wraps could not be erased.
func (p *display) draw() {
	if p.columns == nil {
		return
	}
	columns := p.columns()
	var screen strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&screen, "\x1b[%dA", p.drawn)
	}
	for _, line := range p.lines {
		text := []rune(line.text())
		if len(text) > columns-1 {
			text = append(text[:max(0, columns-2)], '…')
		}
		screen.WriteString("\r\x1b[K" + string(text) + "\n")
	}
	p.drawn = len(p.lines)
	_, _ = io.WriteString(p.out, screen.String()) // as above
}

func (p *display) erase() {
	if p.columns == nil || p.drawn == 0 {
		return
	}
	_, _ = fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.drawn)
	p.drawn = 0
}

func duration(d time.Duration) string { return status.Duration(d) }
