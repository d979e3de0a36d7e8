package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/why"
	"github.com/holdfast-csi/holdfast/internal/why/hostreader"
)

// --wait ends early for an object of which why says for stuckAfter that a person has to
// act, while the host does not work on it.
const (
	judgeEvery = 2 * time.Second
	stuckAfter = 15 * time.Second
)

// judge returns an error with the answer of why for an object that does not become ready
// without a person, and nil when everything is ready or the context ends.
func (w *waiter) judge(ctx context.Context, every, after time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	since := map[api.Applied]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil // the others report why
		case <-w.ready:
			return nil
		case now := <-ticker.C:
			for _, applied := range w.waiting() {
				answer := w.stuck(ctx, applied)
				begun, known := since[applied]
				switch {
				case answer == "":
					delete(since, applied)
				case !known:
					since[applied] = now
				case now.Sub(begun) >= after:
					return fmt.Errorf("waiting does not help, although the host continues: %s", answer)
				}
			}
		}
	}
}

func (w *waiter) waiting() []api.Applied {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.pending))
}

// stuck returns the answer of why for an object if a person has to act, and "" otherwise.
// What cannot be found out is no reason to end.
func (w *waiter) stuck(ctx context.Context, applied api.Applied) string {
	kind, known := kindNamed(applied.Kind)
	if !known {
		return ""
	}
	states, err := w.client.State(ctx, kind, applied.Key)
	if err != nil || slices.ContainsFunc(states, func(state api.WorkState) bool { return state.Running }) {
		return "" // an earlier failure may be over
	}
	namespace, name, _ := strings.Cut(applied.Key, "/")
	subject, err := why.ParseSubject(strings.ToLower(applied.Kind)+"/"+name, namespace)
	if err != nil {
		return ""
	}
	report, err := why.Ask(ctx, hostreader.New(w.client), subject)
	if err != nil || report.State != why.Stuck {
		return ""
	}
	first := report.Findings[0]
	answer := report.Answer()
	for _, more := range []string{first.Error, first.Do} {
		if more != "" {
			answer += ". " + printable(more)
		}
	}
	return answer
}
