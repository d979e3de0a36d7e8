package provision

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// tracedIn gives each process of a test a Tracer.
func (w *world) tracedIn(spans *tracingtest.Spans) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, _ *Options) { env.Tracer = spans.Tracer(w.t) }
}

// bindSaved waits for the PersistentVolume of a claim and binds it.
func (w *world) bindSaved(name string) {
	w.t.Helper()
	w.saved("pvc-uid-" + name)
	pvc := w.claimNow(name)
	pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-uid-"+name, corev1.ClaimBound
	w.Put(pvc)
}

// tree waits for the spans.
func (w *world) tree(spans *tracingtest.Spans, want ...string) {
	w.t.Helper()
	w.Eventually(func() error {
		if got := spans.Tree(); !slices.Equal(got, want) {
			return fmt.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

const createSpan = "    csi.v1.Controller/CreateVolume"

func TestTrace_ofAClaimUntilItIsBound(t *testing.T) {
	spans := tracingtest.New()
	w := newWorld(t, newClass(), newClaim("a"))
	w.answer(csidriver.Fail(codes.Unavailable, "away"))
	w.run(w.tracedIn(spans))
	w.bindSaved("a")
	w.tree(spans, "provision",
		"  attempt !", createSpan+" !",
		"  attempt", createSpan, "    create PersistentVolume",
		"  bind")
	annotation := w.pv("pvc-uid-a").Annotations[claim.TraceparentAnnotation]
	root := spans.All()[len(spans.All())-1]
	if root.Name != rootSpan || !strings.Contains(annotation, root.SpanContext.TraceID().String()) {
		t.Errorf("the PersistentVolume names %q, and the last span is %s of %s", annotation, root.Name, root.SpanContext.TraceID())
	}
	var said []string
	for _, attribute := range root.Attributes {
		said = append(said, string(attribute.Key)+"="+attribute.Value.AsString())
	}
	want := []string{
		"k8s.namespace.name=ns", "k8s.persistentvolumeclaim.name=a", "k8s.persistentvolumeclaim.uid=uid-a",
		"k8s.persistentvolume.name=pvc-uid-a", "k8s.storageclass.name=fast", "csi.driver.name=d.example",
	}
	if !slices.Equal(said, want) {
		t.Errorf("the root has the attributes %q, want %q", said, want)
	}
}

// TestTrace_survivesACrash: the process ends at each point after the intent, and the next one
// continues the trace.
func TestTrace_survivesACrash(t *testing.T) {
	for point, want := range map[string][]string{
		"create/intent": {"provision", "  attempt", createSpan, "    create PersistentVolume", "  bind"},
		"create/called": {
			"provision", "  attempt !", createSpan, "  attempt", createSpan, "    create PersistentVolume", "  bind",
		},
		// The claim is bound before the next process starts.
		"create/saved": {"provision", "  attempt !", createSpan, "    create PersistentVolume"},
	} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			spans := tracingtest.New()
			w := newWorld(t, newClass())
			w.crash(point, func() { w.Add(newClaim("a")) }, w.tracedIn(spans))
			if point == "create/saved" {
				w.bindSaved("a")
			}
			w.run(w.tracedIn(spans))
			w.bindSaved("a")
			w.tree(spans, want...)
		})
	}
}

func TestTrace_ofADeletionLinksToTheCreation(t *testing.T) {
	spans := tracingtest.New()
	w := newWorld(t, newClass(), newClaim("a"))
	w.run(w.tracedIn(spans))
	w.bindSaved("a")
	created := []string{"provision", "  attempt", createSpan, "    create PersistentVolume", "  bind"}
	w.tree(spans, created...)
	pv := w.pv("pvc-uid-a")
	pv.Status.Phase = corev1.VolumeReleased
	w.Delete(w.claimNow("a"))
	w.Put(pv)
	w.tree(spans, append(created, "delete -> provision", "  csi.v1.Controller/DeleteVolume")...)
}

func TestTrace_withoutAnExporterLeavesNoAnnotation(t *testing.T) {
	w := newWorld(t, newClass(), newClaim("a"))
	w.run()
	if annotations := w.saved("pvc-uid-a").Annotations; annotations[claim.TraceparentAnnotation] != "" {
		t.Errorf("the PersistentVolume has %v", annotations)
	}
}

// TestTrace_hasNoSecret also checks the driver's message, in which the client hides secrets.
func TestTrace_hasNoSecret(t *testing.T) {
	const marker = "marker-of-a-secret"
	spans := tracingtest.New()
	w := newWorld(t, newClass(parameters(
		"csi.storage.k8s.io/provisioner-secret-name", "s", "csi.storage.k8s.io/provisioner-secret-namespace", "ns", "key", "parameter-"+marker)),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"password": []byte(marker)}},
		newClaim("a"))
	var failed atomic.Bool
	w.Driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateVolume" && failed.CompareAndSwap(false, true) {
			return csidriver.Fail(codes.Unavailable, "cannot log in with "+marker)
		}
		return nil
	}
	w.run(w.tracedIn(spans))
	w.bindSaved("a")
	w.tree(spans, "provision", "  attempt !", createSpan+" !", "  attempt", createSpan, "    create PersistentVolume", "  bind")
	if text := spans.Text(); strings.Contains(text, marker) {
		t.Errorf("a span has the secret: %s", text)
	}
}
