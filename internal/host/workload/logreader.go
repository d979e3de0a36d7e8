package workload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// Last reads the container's recorded state; the zero State if the container never ran.
func (s Shim) Last() (State, error) {
	root, err := os.OpenRoot(s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("open the container's state: %w", err)
	}
	defer func() { _ = root.Close() }()
	return inside.ReadState(root)
}

// LogOptions select the part of an attempt's output, and its form.
type LogOptions struct {
	// Follow reads until the attempt ends.
	Follow bool
	// Tail is how many of the last lines to return, all if negative.
	Tail int
	// Since leaves out what was written before this time, of the Tail as well.
	Since time.Time
	// Timestamps puts the time at which it was written before each line.
	Timestamps bool
}

// ReadLog returns an attempt's output, of both streams in the order in which it came, as
// it was written. To follow, it waits for changes of the files and inspects nothing without
// one.
func (s Shim) ReadLog(ctx context.Context, attempt int, o LogOptions) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &logReader{ctx: ctx, cancel: cancel, shim: s, attempt: attempt, LogOptions: o}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// logReader is used by one goroutine; the end of the context ends a Read that waits.
type logReader struct {
	ctx     context.Context //nolint:containedctx // of the call that asked for the log
	cancel  context.CancelFunc
	shim    Shim
	attempt int
	LogOptions
	watcher *fsnotify.Watcher

	file    *os.File
	buffer  *bufio.Reader
	partial []byte // a line of the file that is not complete yet
	text    []byte // the output of the next Read
	skip    int    // lines to skip
	within  bool   // the next part continues a line
}

func (r *logReader) open() error {
	if r.Follow {
		var err error
		if r.watcher, err = fsnotify.NewBufferedWatcher(1); err != nil {
			return fmt.Errorf("follow the log: %w", err)
		}
		for _, directory := range []string{r.shim.Logs, r.shim.State} {
			if err := r.watcher.Add(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("follow the log: %w", err)
			}
		}
	}
	current, aside := r.shim.LogFile(r.attempt)
	if r.Tail >= 0 {
		total := 0
		for _, name := range []string{aside, current} {
			lines, err := countLines(name)
			if err != nil {
				return err
			}
			total += lines
		}
		r.skip = max(0, total-r.Tail)
	}
	if err := r.use(aside); err != nil || r.file != nil {
		return err
	}
	return r.use(current)
}

// use continues with a file. A missing file is not an error.
func (r *logReader) use(name string) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.buffer, r.partial = file, bufio.NewReaderSize(file, inside.MaximumLine), nil
	return nil
}

// countLines counts whole lines of output: parts of one are one.
func countLines(name string) (int, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := 0
	for reader := bufio.NewReaderSize(file, inside.MaximumLine+128); ; {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return lines, nil // its end; a line that is being written is not counted
		}
		if _, _, whole, ok := parseLine(line); ok && whole {
			lines++
		}
	}
}

// parseLine takes the time and the text out of a line of a log file.
func parseLine(line []byte) (written, text []byte, whole, ok bool) {
	fields := bytes.SplitN(bytes.TrimSuffix(line, []byte{'\n'}), []byte{' '}, 4)
	if len(fields) < 4 || len(fields[2]) != 1 {
		return nil, nil, false, false
	}
	return fields[0], fields[3], fields[2][0] == 'F', true
}

// isOlder reports whether a part was written before Since. One without a time is not.
func (r *logReader) isOlder(written []byte) bool {
	if r.Since.IsZero() {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, string(written))
	return err == nil && at.Before(r.Since)
}

func (r *logReader) Read(into []byte) (int, error) {
	for len(r.text) == 0 {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(into, r.text)
	r.text = r.text[n:]
	return n, nil
}

// fill reads the next line, of this file or of the next, or waits for one.
func (r *logReader) fill() error {
	last := !r.Follow || r.ended() // asked before the read: what comes later is not missed
	got, err := r.line()
	if err != nil || got {
		return err
	}
	moved, err := r.moveOn()
	if err != nil || moved {
		return err
	}
	if last {
		return io.EOF
	}
	select {
	case _, open := <-r.watcher.Events:
		if !open {
			return io.EOF
		}
	case err := <-r.watcher.Errors:
		if !errors.Is(err, fsnotify.ErrEventOverflow) { // something changed, that is all
			return fmt.Errorf("follow the log: %w", err)
		}
	case <-r.ctx.Done():
	}
	return nil
}

// line reads a line; got is false at the file's end.
func (r *logReader) line() (got bool, err error) {
	if r.file == nil {
		return false, nil
	}
	line, err := r.buffer.ReadBytes('\n')
	r.partial = append(r.partial, line...)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	written, text, whole, ok := parseLine(r.partial)
	if ok && r.skip == 0 && !r.isOlder(written) {
		r.text = r.text[:0:0]
		if r.Timestamps && !r.within {
			r.text = append(append(r.text, written...), ' ')
		}
		r.text = append(r.text, text...)
		if whole {
			r.text = append(r.text, '\n')
		}
		r.within = !whole
	}
	if ok && whole && r.skip > 0 {
		r.skip--
	}
	r.partial = r.partial[:0]
	return true, nil
}

// moveOn goes to the file that follows: after the one that was put aside, or
// because this one was put aside since.
func (r *logReader) moveOn() (bool, error) {
	current, aside := r.shim.LogFile(r.attempt)
	info, err := os.Stat(current)
	if err != nil {
		return false, nil //nolint:nilerr // not yet, or not any more
	}
	if r.file != nil {
		open, err := r.file.Stat()
		if err != nil || os.SameFile(open, info) {
			return false, err
		}
		// What was written between the last read and the move.
		if got, err := r.line(); err != nil || got {
			return got, err
		}
		// If the rotated file is another one, this file was removed: the other comes first.
		if older, err := os.Stat(aside); err == nil && !os.SameFile(open, older) {
			return true, r.use(aside)
		}
	}
	return true, r.use(current)
}

// ended reports whether no more output will come.
func (r *logReader) ended() bool {
	state, err := r.shim.Last()
	return err != nil || state.Attempt != r.attempt || state.Phase == Exited || state.Phase == ""
}

// Close closes the files.
func (r *logReader) Close() error {
	r.cancel()
	var failed error
	if r.watcher != nil {
		failed = r.watcher.Close()
	}
	if r.file != nil {
		failed = errors.Join(failed, r.file.Close())
	}
	return failed
}
