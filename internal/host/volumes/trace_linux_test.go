package volumes

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
)

func wantTree(t *testing.T, spans *tracingtest.Spans, want ...string) {
	t.Helper()
	if got := spans.Tree(); !slices.Equal(got, want) {
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTrace_ofAPodsMount: all attempts of a mount are one trace, and a mount that has nothing
// to do is none.
func TestTrace_ofAPodsMount(t *testing.T) {
	w, spans := newWorld(t), tracingtest.New()
	w.manager.options.Tracer = spans.Tracer(t)
	w.ensured("data")
	created := []string{"create", "  csi.v1.Controller/CreateVolume"}
	wantTree(t, spans, created...)
	w.driver.Before = failing("NodePublishVolume", codes.Unavailable, 1)
	p := pod("a", "data")
	w.mount(p)
	mounted := append(created, "mount",
		"  attempt !", "    csi.v1.Node/NodeGetCapabilities", "    stage", "      csi.v1.Node/NodeStageVolume", "    publish !", "      csi.v1.Node/NodePublishVolume !",
		"  attempt", "    publish", "      csi.v1.Node/NodePublishVolume")
	wantTree(t, spans, mounted...)
	w.mount(p)
	wantTree(t, spans, mounted...)
	w.unmount(p)
	wantTree(t, spans, append(mounted, "unpublish", "  csi.v1.Node/NodeUnpublishVolume", "unstage", "  csi.v1.Node/NodeUnstageVolume")...)
	if text := spans.Text(); !strings.Contains(text, string(p.UID)) {
		t.Errorf("no span names the pod: %s", text)
	}
}

func TestTrace_ofAPodThatIsGone(t *testing.T) {
	w, spans := newWorld(t), tracingtest.New()
	w.manager.options.Tracer = spans.Tracer(t)
	w.ensured("data")
	w.driver.Before = failing("NodeStageVolume", codes.Unavailable, 100)
	p := pod("a", "data")
	if _, err := w.manager.MountPod(t.Context(), p); err == nil {
		t.Fatal("it is mounted")
	}
	if w.manager.mounting.get(string(p.UID)).traceparent == "" {
		t.Error("the next attempt would be in another trace")
	}
	w.unmount(p)
	if left := w.manager.mounting.get(string(p.UID)); left.traceparent != "" {
		t.Errorf("the trace %v of a pod that is gone is kept", left)
	}
}
