package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/logformat"
)

// discard is the writer of check.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// logger writes to w in the configured format.
func (l *logConfig) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, fmt.Errorf("log level %q is not one of debug, info, warn, error", l.level)
	}
	if l.verbosity >= 4 {
		level = min(level, slog.LevelDebug)
	}
	options := slog.HandlerOptions{Level: level}
	switch {
	case l.format == "text", l.format == "auto" && isTerminal(w):
		return slog.New(logformat.Text(w, options)), nil
	case l.format == "json", l.format == "auto":
		return slog.New(logformat.JSON(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q is not one of auto, text, json", l.format)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// logLimit is the size in bytes at which a log file is renamed.
const logLimit = 10 << 20

// logFile is a file that stays below a size: at the limit it replaces the previous
// file, and a new file begins.
type logFile struct {
	path  string
	limit int64

	mu     sync.Mutex
	file   *os.File // nil after a failed open, and once closed
	size   int64
	closed bool
}

func openLogFile(path string, limit int64) (*logFile, error) {
	l := &logFile{path: path, limit: limit}
	return l, l.open(0)
}

// open opens the file for appending, or with further flags.
func (l *logFile) open(flags int) error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|flags, 0o640)
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("log file: %w", err)
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write implements io.Writer: one line per call, which is never torn.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, fs.ErrClosed
	}
	if err := l.makeRoom(int64(len(line))); err != nil {
		return 0, err
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	return n, err
}

func (l *logFile) makeRoom(bytes int64) error {
	switch {
	case l.file == nil:
		return l.open(0)
	case l.size > 0 && l.size+bytes > l.limit:
		return l.rotate()
	}
	return nil
}

// rotate begins a new file. If another program has the file open and prevents the rename,
// rotate empties it instead: the size must stay below the limit.
func (l *logFile) rotate() error {
	_ = l.file.Close()
	l.file = nil
	old := l.path + ".old"
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.open(os.O_TRUNC)
	}
	if err := os.Rename(l.path, old); err != nil {
		return l.open(os.O_TRUNC)
	}
	return l.open(0)
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// keepCrash makes the runtime also append the text of a crash to a file, because a
// service has no standard error.
func keepCrash(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("file for a crash: %w", err)
	}
	defer func() { _ = file.Close() }() // the runtime has its own handle
	if info, err := file.Stat(); err == nil && info.Size() > logLimit {
		if err := file.Truncate(0); err != nil {
			return fmt.Errorf("file for a crash: %w", err)
		}
	}
	return debug.SetCrashOutput(file, debug.CrashOptions{})
}
