package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func (w *world) tree(spans *tracingtest.Spans, want ...string) {
	w.t.Helper()
	w.Eventually(func() error {
		if got := spans.Tree(); !slices.Equal(got, want) {
			return fmt.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// TestTrace_ofAnAttachment: each attempt is in the trace that the VolumeAttachment names, which
// links to that of the volume's creation.
func TestTrace_ofAnAttachment(t *testing.T) {
	spans := tracingtest.New()
	provisioner := spans.Tracer(t)
	created := provisioner.Begin("provision")
	w := newWorld(t, node("n1"), volume("pv", func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{claim.TraceparentAnnotation: created}
	}))
	w.Env.Tracer = spans.Tracer(t)
	var failed atomic.Bool
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "ControllerPublishVolume" && failed.CompareAndSwap(false, true) {
			return csidriver.Fail(codes.Unavailable, "away")
		}
		return nil
	}
	w.run()
	va := attachment("va", "pv", "n1")
	w.Add(va)
	w.attached("va")
	provisioner.Finish(created, "", "provision", w.volume("pv").CreationTimestamp.Add(-1), nil)
	attached := []string{
		"provision", "attach -> provision",
		"  attempt !", "    csi.v1.Controller/ControllerPublishVolume !", "  attempt", "    csi.v1.Controller/ControllerPublishVolume",
	}
	w.tree(spans, attached...)
	w.Delete(va)
	w.gone("va")
	w.tree(spans, append(attached, "detach -> attach", "  csi.v1.Controller/ControllerUnpublishVolume")...)
}

func TestTrace_withoutAnExporterLeavesNoAnnotation(t *testing.T) {
	w := newWorld(t, node("n1"), volume("pv"), attachment("va", "pv", "n1"))
	w.run()
	if annotations := w.attached("va").Annotations; annotations[TraceparentAnnotation] != "" {
		t.Errorf("the VolumeAttachment has %v", annotations)
	}
}
