package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

// copyDisplay shows how far a copy is that takes longer than a second: on a terminal one
// line that is replaced, elsewhere one line every ten seconds.
type copyDisplay struct {
	out      io.Writer
	terminal bool
	done     atomic.Int64
	total    atomic.Int64 // 0 if it is not known

	mu       sync.Mutex
	drawn    bool // the terminal's line has the display
	warnings int
	meter    progress.Meter
	stop     chan struct{}
	stopped  sync.WaitGroup
}

// copyQuiet is how long a copy runs before it is shown.
const copyQuiet = time.Second

// mostWarnings bounds the warnings that are shown: a container may have any number of links.
const mostWarnings = 20

func newCopyDisplay(out io.Writer) *copyDisplay {
	d := &copyDisplay{out: out, stop: make(chan struct{})}
	if file, ok := out.(*os.File); ok {
		d.terminal = term.IsTerminal(int(file.Fd()))
	}
	every := sayEvery
	if d.terminal {
		every = redrawEvery
	}
	d.stopped.Go(func() { d.tick(every) })
	return d
}

func (d *copyDisplay) tick(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	started := time.Now()
	for {
		select {
		case <-d.stop:
			return
		case now := <-ticker.C:
			d.mu.Lock()
			state := d.meter.Observe(now, progress.Operation{Doing: "copying", Done: d.done.Load(), Total: d.total.Load(), Unit: progress.Bytes})
			if now.Sub(started) >= copyQuiet {
				d.show(state)
			}
			d.mu.Unlock()
		}
	}
}

// show writes the state; d.mu is held.
func (d *copyDisplay) show(state progress.State) {
	if d.terminal {
		_, _ = fmt.Fprint(d.out, "\r\x1b[K"+bar(state)+state.String()) // a display that fails does not stop the copy
		d.drawn = true
		return
	}
	_, _ = fmt.Fprintln(d.out, state.String())
}

// say writes a line. After many, it only counts them.
func (d *copyDisplay) say(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.warnings++; d.warnings > mostWarnings {
		return
	}
	d.erase()
	_, _ = fmt.Fprintln(d.out, text)
}

func (d *copyDisplay) erase() {
	if d.drawn {
		_, _ = fmt.Fprint(d.out, "\r\x1b[K")
		d.drawn = false
	}
}

// add is called with what more was copied.
func (d *copyDisplay) add(bytes int64) { d.done.Add(bytes) }

// close ends the display.
func (d *copyDisplay) close() {
	close(d.stop)
	d.stopped.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.erase()
	if more := d.warnings - mostWarnings; more > 0 {
		_, _ = fmt.Fprintf(d.out, "Warning: %d more are left out\n", more)
	}
}
