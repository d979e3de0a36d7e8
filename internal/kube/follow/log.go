package follow

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Log logs each kind of failure once: a missing right stays missing, and repeated
// lines carry no information.
type Log struct {
	logger *slog.Logger
	mu     sync.Mutex
	logged map[string]bool
}

// NewLog writes to a logger.
func NewLog(logger *slog.Logger) *Log { return &Log{logger: logger, logged: map[string]bool{}} }

// Failure logs an error, at level debug if one of its kind was logged before.
func (l *Log) Failure(ctx context.Context, what string, err error) {
	kind := what + "/" + string(apierrors.ReasonForError(err))
	l.mu.Lock()
	again := l.logged[kind]
	l.logged[kind] = true
	l.mu.Unlock()
	switch {
	case again:
		l.logger.DebugContext(ctx, "still failing", "what", what, "error", err)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		l.logger.ErrorContext(ctx, "the role of this service account lacks a right; retrying, further failures are logged at level debug",
			"what", what, "error", err)
	default:
		l.logger.WarnContext(ctx, "retrying; further failures are logged at level debug", "what", what, "error", err)
	}
}
