package service

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// events is an event log in memory.
type events []string

func (e *events) Write(level slog.Level, text string) error {
	*e = append(*e, level.String()+" "+strings.TrimSpace(text))
	return nil
}

func TestWithEvents_hasErrorsAndWhatIsMarked(t *testing.T) {
	var seen events
	var out bytes.Buffer
	log := WithEvents(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})), &seen)
	log.Info("starts", Always)
	log.Info("not an event")
	log.Warn("neither")
	log.With("pipe", "p").WithGroup("g").Error("broken", "key", "value")
	want := []string{"INFO msg=starts", "ERROR msg=broken pipe=p g.key=value"}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("the events are %q, want %q", seen, want)
	}
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "neither") || !strings.Contains(text, "broken") {
		t.Errorf("the log is %s", text)
	}
}

func TestWithEvents_truncatesLongTexts(t *testing.T) {
	var seen events
	log := WithEvents(slog.New(slog.DiscardHandler), &seen)
	log.Error(strings.Repeat("x", 2*longestEvent))
	if len(seen) != 1 || len(seen[0]) > longestEvent+len("ERROR ") {
		t.Errorf("there are %d events", len(seen))
	}
}
