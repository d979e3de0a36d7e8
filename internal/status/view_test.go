package status_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/status"
	"github.com/holdfast-csi/holdfast/internal/status/statustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func remove(resource, key string) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		kind, _ := store.KindOf(resource)
		return tx.Objects(kind).Delete(key)
	}
}

// use returns the view of a machine, until the test ends.
func use(t *testing.T, m *statustest.Machine) status.View {
	t.Helper()
	live := status.NewLive(m.Source)
	t.Cleanup(live.Close)
	view, release, err := live.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return view
}

// until waits for changes until a condition holds.
func until(t *testing.T, view status.View, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := view.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("not seen: %s", what)
		}
	}
}

func TestView_followsObjectsAndSteps(t *testing.T) {
	m := statustest.New(t)
	m.Put(t, statustest.Bound("old")...)
	m.Journal.Step(statustest.Step("old", "create", journal.Done, time.Second))
	view := use(t, m)
	if rows := view.Claims(); len(rows) != 1 || rows[0].Level != status.Good || rows[0].Status != "Bound" {
		t.Fatalf("at the start: %+v", rows)
	}
	page := view.Page(t.Context(), status.Ref{Kind: status.Claim, Namespace: "default", Name: "old"})
	if len(page.Steps.Bars) != 1 || page.Steps.Took != time.Second || !page.Exists {
		t.Errorf("at the start: %+v", page)
	}
	m.Put(t, statustest.Claim("new"))
	until(t, view, "the new claim", func() bool { return len(view.Claims()) == 2 })
	m.Journal.Step(statustest.Step("new", "create", journal.Started, 0))
	running := func() []status.Bar { return view.Overview(t.Context()).Steps }
	until(t, view, "the step that began", func() bool { return len(running()) == 1 })
	if row := view.Claims()[0]; row.Ref.Name != "new" || row.Running == nil || row.Running.Step != "create" {
		t.Errorf("the claim is %+v", row)
	}
	m.Journal.Step(statustest.Step("new", "create", journal.Done, time.Millisecond))
	until(t, view, "the end of the step", func() bool { return len(running()) == 0 })
	m.Put(t, statustest.Bound("new")...)
	until(t, view, "the volume", func() bool { return view.Claims()[0].Level == status.Good })
	if err := m.Store.Update(remove("persistentvolumeclaims", "default/new")); err != nil {
		t.Fatal(err)
	}
	until(t, view, "the deletion", func() bool { return len(view.Claims()) == 1 })
}

func TestOverview_namesWhatWaitsAndWhy(t *testing.T) {
	m := statustest.New(t)
	m.Put(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "gone.example"},
		statustest.Claim("waits"), statustest.Pod("web", "missing"))
	m.Put(t, statustest.Bound("fine")...)
	overview := use(t, m).Overview(t.Context())
	var texts []string
	for _, wait := range overview.Waiting {
		texts = append(texts, wait.Ref.String()+": "+wait.Reason)
	}
	slices.Sort(texts)
	for i, want := range []string{"pod/default/web: the claim missing in namespace default does not exist", "pvc/default/waits: driver gone.example is not"} {
		if i >= len(texts) || !strings.HasPrefix(texts[i], want) {
			t.Errorf("got %q, want %q as number %d", texts, want, i)
		}
	}
	if counts := fmt.Sprint(overview.Counts); counts != "[{pvc 2 1} {pod 1 1} {snapshot 0 0}]" {
		t.Errorf("the counts are %s", counts)
	}
	if len(overview.Drivers) != 1 || !overview.Drivers[0].Healthy || len(overview.Problems) != 0 {
		t.Errorf("drivers %+v, problems %v", overview.Drivers, overview.Problems)
	}
}

// A pod that ended with an error does not wait.
func TestOverview_leavesOutWhatEnded(t *testing.T) {
	m := statustest.New(t)
	pod := statustest.Pod("job", "data")
	pod.Status.Phase = corev1.PodFailed
	m.Put(t, pod)
	m.Put(t, statustest.Bound("data")...)
	if o := use(t, m).Overview(t.Context()); len(o.Waiting) != 0 {
		t.Errorf("waits: %+v", o.Waiting)
	}
}

func TestOverview_isBounded(t *testing.T) {
	m := statustest.New(t)
	for i := range 50 {
		m.Put(t, statustest.Claim(fmt.Sprintf("claim-%02d", i)))
		m.Journal.Step(statustest.Step(fmt.Sprintf("claim-%02d", i), "create", journal.Started, 0))
	}
	o := use(t, m).Overview(t.Context())
	if len(o.Waiting)+o.More != 50 || len(o.Waiting) != 20 || len(o.Steps)+o.MoreSteps != 50 || len(o.Steps) != 20 {
		t.Errorf("%d + %d wait, %d + %d steps", len(o.Waiting), o.More, len(o.Steps), o.MoreSteps)
	}
}

// Nothing is watched while nobody looks, and the objects are current afterwards.
func TestLive_watchesOnlyWhileInUse(t *testing.T) {
	m := statustest.New(t)
	live := status.NewLive(m.Source)
	defer live.Close()
	for i := range 3 {
		m.Put(t, statustest.Claim(fmt.Sprint("claim-", i)))
		view, release, err := live.Use(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		until(t, view, "the claim", func() bool { return len(view.Claims()) == i+1 })
		release()
	}
	live.Close()
	if _, _, err := live.Use(t.Context()); err == nil {
		t.Error("a page that ended is in use")
	}
}
