package service

import (
	"bytes"
	"context"
	"log/slog"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/logformat"
)

// Always marks a record for the event log independent of its level, such as those of
// start and stop: logger.Info("…", service.Always).
var Always = slog.Bool("event", true) //nolint:gochecknoglobals // a value without state, like those of package slog

// longestEvent is the most characters of an event (ReportEvent, per string).
const longestEvent = 31839

// writer writes events.
type writer interface {
	Write(level slog.Level, text string) error
}

// WithEvents returns a logger that also writes errors, and records with the mark Always,
// to the event log as text.
func WithEvents(inner *slog.Logger, events writer) *slog.Logger {
	shared := &texts{events: events}
	return slog.New(both{inner.Handler(), logformat.Text(&shared.text, slog.HandlerOptions{ReplaceAttr: withoutTime}), shared})
}

func withoutTime(groups []string, attribute slog.Attr) slog.Attr {
	if len(groups) == 0 && (attribute.Key == slog.TimeKey || attribute.Key == slog.LevelKey || attribute.Equal(Always)) {
		return slog.Attr{}
	}
	return attribute
}

// texts formats one event at a time.
type texts struct {
	mu     sync.Mutex
	text   bytes.Buffer
	events writer
}

// both is the handler.
type both struct {
	slog.Handler
	text   slog.Handler // writes into shared.text
	shared *texts
}

// Handle implements slog.Handler. It ignores an error of the event log, which may be full.
func (b both) Handle(ctx context.Context, record slog.Record) error {
	if isEvent(record) {
		b.event(ctx, record)
	}
	if !b.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return b.Handler.Handle(ctx, record)
}

func isEvent(record slog.Record) bool {
	is := record.Level >= slog.LevelError
	record.Attrs(func(attribute slog.Attr) bool {
		is = is || attribute.Equal(Always)
		return !is
	})
	return is
}

func (b both) event(ctx context.Context, record slog.Record) {
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	b.shared.text.Reset()
	if b.text.Handle(ctx, record) != nil {
		return
	}
	text := b.shared.text.String()
	_ = b.shared.events.Write(record.Level, text[:min(len(text), longestEvent)])
}

// Enabled implements slog.Handler: start and stop are events at any level.
func (b both) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || b.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (b both) WithAttrs(attributes []slog.Attr) slog.Handler {
	return both{b.Handler.WithAttrs(attributes), b.text.WithAttrs(attributes), b.shared}
}

// WithGroup implements slog.Handler.
func (b both) WithGroup(name string) slog.Handler {
	return both{b.Handler.WithGroup(name), b.text.WithGroup(name), b.shared}
}
