package service

import (
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sys/windows/svc/eventlog"
)

// Events is the event log, with the service's name as its source.
type Events struct{ log *eventlog.Log }

// OpenEvents opens the log.
func OpenEvents(source string) (*Events, error) {
	log, err := eventlog.Open(source)
	if err != nil {
		return nil, fmt.Errorf("event log of %s: %w", source, err)
	}
	return &Events{log}, nil
}

// event is the ID of all events: their message file has one text for each.
const event = 1

// Write adds an event.
func (e *Events) Write(level slog.Level, text string) error {
	text = strings.ReplaceAll(text, "\x00", "")
	switch {
	case level >= slog.LevelError:
		return e.log.Error(event, text)
	case level >= slog.LevelWarn:
		return e.log.Warning(event, text)
	}
	return e.log.Info(event, text)
}

// Close closes the log.
func (e *Events) Close() error { return e.log.Close() }
