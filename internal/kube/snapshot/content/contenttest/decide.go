package contenttest

import (
	"testing"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// Row is a content and the step that it needs next.
type Row[T any] struct {
	Object T
	Want   content.Step
}

// NextSteps compares the decisions on contents with a table.
func (s *Suite[T]) NextSteps(t *testing.T, rows map[string]Row[T]) {
	t.Helper()
	for name, row := range rows {
		if got := s.Traits.Next(s.View(row.Object)); got != row.Want {
			t.Errorf("%s: %s; want %s", name, got, row.Want)
		}
	}
}

func (s *Suite[T]) nextStep(t *testing.T) {
	of := Snapshot{"s", []string{"m"}}
	marked, deleted, userGone, unbound, retain := s.Marked, s.Deleted, s.UserGone, s.Unbound, s.Retain
	pending, ready, existing := s.Recorded(of, false), s.Recorded(of, true), func(object T) { s.Existing(object, of) }
	failed := func(object T) { s.Fail(object, "no") }
	poll := content.StepPoll
	if s.Traits.Inspected {
		poll = content.StepInspect
	}
	rows := map[string]Row[T]{}
	add := func(name string, want content.Step, changes ...func(T)) {
		rows[name] = Row[T]{s.Make("a", changes...), want}
	}
	add("new", content.StepCreate)
	add("marked, no answer", content.StepCreate, marked)
	add("failed", content.StepCreate, failed)
	add("recorded, marked", content.StepUnmark, marked, pending)
	add("recorded and ready, marked", content.StepUnmark, marked, ready)
	add("not ready", poll, pending)
	add("ready", content.StepNothing, ready)
	add("static, new", content.StepInspect, existing)
	add("static, not ready", content.StepInspect, existing, pending)
	add("static, ready", content.StepNothing, existing, ready)
	add("deleted by its user", content.StepDelete, ready, deleted, userGone)
	add("deleted before it was ready", content.StepDelete, pending, deleted, userGone)
	add("deleted, being created", content.StepCreate, marked, deleted, userGone)
	add("deleted, being created, without a finalizer", content.StepCreate, marked, deleted, userGone, s.Unfinalized)
	add("deleted, recorded, marked", content.StepUnmark, marked, pending, deleted, userGone)
	add("deleted before it was requested", content.StepRelease, deleted, userGone)
	add("deleted after a final error", content.StepRelease, failed, deleted, userGone)
	add("deleted, to be retained", content.StepRelease, ready, deleted, userGone, retain)
	add("deleted, its user exists", content.StepNothing, ready, deleted)
	add("new, deleted, its user exists", content.StepCreate, deleted)
	add("new, deleted, without a finalizer", content.StepNothing, deleted, s.Unfinalized)
	add("new, its user is being deleted", content.StepNothing, userGone)
	add("marked, its user is being deleted", content.StepCreate, marked, userGone)
	add("static, unbound, deleted", content.StepDelete, existing, unbound, ready, deleted)
	add("static, unbound, deleted without a status", content.StepRelease, existing, unbound, deleted)
	add("static, bound, deleted", content.StepNothing, existing, ready, deleted)
	add("static, bound, deleted by its user", content.StepDelete, existing, ready, deleted, userGone)
	add("static, bound, retained, deleted", content.StepRelease, existing, ready, deleted, userGone, retain)
	s.NextSteps(t, rows)
}
