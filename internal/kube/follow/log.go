package follow

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Log tells of each kind of failure once: a right that is missing stays
// missing, and a node has nobody who reads the same line for the hundredth time.
type Log struct {
	logger *slog.Logger
	mu     sync.Mutex
	told   map[string]bool
}

// NewLog writes to a logger.
func NewLog(logger *slog.Logger) *Log { return &Log{logger: logger, told: map[string]bool{}} }

// Failure tells of an error, at level debug if one of its kind was told before.
func (l *Log) Failure(ctx context.Context, what string, err error) {
	kind := what + "/" + string(apierrors.ReasonForError(err))
	l.mu.Lock()
	again := l.told[kind]
	l.told[kind] = true
	l.mu.Unlock()
	switch {
	case again:
		l.logger.DebugContext(ctx, "still failing", "what", what, "error", err)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		l.logger.ErrorContext(ctx, "the API server refuses; the role of this service account lacks a right. It is tried again, and not told again",
			"what", what, "error", err)
	default:
		l.logger.WarnContext(ctx, "trying again, and not telling again", "what", what, "error", err)
	}
}
