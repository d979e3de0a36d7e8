package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	// maximumLog is the size at which a log is rotated, in bytes.
	maximumLog = 1 << 20
	logSuffix  = ".log"
	olderLog   = ".1"
	// tailBytes of a log are read for its last tailLines lines.
	tailBytes, tailLines = 8 << 10, 10
	// logPause bounds the inspections of a driver that writes all the time.
	logPause = time.Second
	// pollLogs is the interval of inspecting logs if inotify is not available.
	pollLogs = 10 * time.Second
)

// logs are the files that the drivers write to themselves, so that their output
// does not depend on the host.
type logs struct {
	directory string
	logger    *slog.Logger
}

func openLogs(directory string, logger *slog.Logger) (*logs, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the drivers' logs: %w", err)
	}
	return &logs{directory: directory, logger: logger}, nil
}

func (l *logs) path(name string) string { return filepath.Join(l.directory, name+logSuffix) }

// open opens the log of a driver for appending: truncation then resets the offset.
func (l *logs) open(name string) (*os.File, error) {
	return os.OpenFile(l.path(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// run rotates logs that exceed maximumLog. It wakes for writes only.
func (l *logs) run(ctx context.Context, notices *notices) {
	defer func() { _ = notices.close() }()
	reported := false
	for {
		err := notices.of(l.directory)
		var due <-chan time.Time
		if err != nil {
			due = time.After(pollLogs)
			if !reported {
				l.logger.Error("the drivers' logs: "+unwatchedText, "error", err)
			}
		}
		reported = err != nil
		changes, lost := notices.channels()
		l.rotateAll()
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-changes:
		case <-lost: //nolint:errcheck // events were lost; all logs are inspected anyway
		}
		if concurrency.Sleep(ctx, logPause) != nil {
			return
		}
		for len(changes) > 0 {
			<-changes
		}
	}
}

func (l *logs) rotateAll() {
	files, err := filepath.Glob(filepath.Join(l.directory, "*"+logSuffix))
	for _, file := range files {
		err = errors.Join(err, rotate(file))
	}
	if err != nil {
		l.logger.Warn("a driver's log is not rotated", "error", err)
	}
}

// rotate copies a log that exceeds maximumLog to its older file and truncates it.
// What the driver writes between the two steps is lost: the driver keeps its
// descriptor, so the file cannot be renamed.
func rotate(file string) (err error) {
	info, err := os.Stat(file)
	if err != nil || info.Size() <= maximumLog {
		return err
	}
	from, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if _, err := from.Seek(-maximumLog, io.SeekEnd); err != nil {
		return err
	}
	to, err := os.OpenFile(file+olderLog, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(from, maximumLog))
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return from.Truncate(0)
}

// tail reads the last lines of a log.
func (l *logs) tail(name string) []string {
	file, err := os.Open(l.path(name))
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return nil
		}
	}
	data, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil || len(data) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return lines[max(0, len(lines)-tailLines):]
}
