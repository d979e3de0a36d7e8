package backend

import (
	"context"
	"slices"
	"sync"
)

// warnings collects the texts of Warn.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

type warningsKey struct{}

// CollectWarnings returns a context for a call of a backend, and a function that returns
// what the call has reported with Warn.
func CollectWarnings(ctx context.Context) (collecting context.Context, texts func() []string) {
	w := &warnings{}
	return context.WithValue(ctx, warningsKey{}, w), func() []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.texts)
	}
}

// Warn reports something about a call that its user should know although the call
// succeeds, such as a value of a class that the backend has changed. It does nothing if the
// caller does not collect warnings.
func Warn(ctx context.Context, text string) {
	if w, ok := ctx.Value(warningsKey{}).(*warnings); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.texts = append(w.texts, text)
	}
}
