// Package telemetry has a process's reports: the logger,
// the address with metrics and health, and traces. Commands build it; packages
// below receive only a logger, a registerer and a tracer provider.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/logformat"
)

// The formats of a log.
const (
	FormatAuto = "auto" // text on a terminal, JSON otherwise
	FormatText = "text"
	FormatJSON = "json"
)

// NewLogger writes lines of at least the given level (debug, info, warn,
// error) to w.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is none of debug, info, warn, error", level)
	}
	options := slog.HandlerOptions{Level: threshold}
	switch {
	case format == FormatText, format == FormatAuto && isTerminal(w):
		return slog.New(logformat.Text(w, options)), nil
	case format == FormatJSON, format == FormatAuto:
		return slog.New(logformat.JSON(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q is none of auto, text, json", format)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
