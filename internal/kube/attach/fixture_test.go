package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driverName = "attachable.example.com"
	finalizer  = "external-attacher/attachable-example-com"
)

// world is a cluster with an attachable driver and, if run was called, its controller.
type world struct {
	*apiserver.Cluster
	t      *testing.T
	driver *csidriver.Driver
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOf(t, driverName, objects...)
}

func newWorldOf(t *testing.T, name string, objects ...runtime.Object) *world {
	t.Helper()
	driver := csidriver.New(name)
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	return &world{Cluster: apiserver.New(t, driver, objects...), t: t, driver: driver}
}

// run starts the controller; it does not reconcile unless an option sets the period.
func (w *world) run(options ...Options) (stop func()) {
	w.t.Helper()
	o := Options{Reconcile: -1}
	if len(options) > 0 {
		o = options[0]
	}
	return w.Run(w.Env, New(w.Env, o))
}

func volume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "handle-" + name,
			}},
		},
	}
	for _, f := range change {
		f(pv)
	}
	return pv
}

func node(name string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "other.example.com", NodeID: "other"}, {Name: driverName, NodeID: "id-" + name}}},
	}
}

func attachment(name, volume, node string, change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
	for _, f := range change {
		f(va)
	}
	return va
}

// publishedAttachment is an attachment that was published to a node, by this controller.
func publishedAttachment(name, volume, node string, change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	return attachment(name, volume, node, append([]func(*storagev1.VolumeAttachment){func(va *storagev1.VolumeAttachment) {
		va.Finalizers = []string{finalizer}
		va.Annotations = map[string]string{NodeIDAnnotation: "id-" + node, HandleAnnotation: "handle-" + volume}
		va.Status.Attached = true
	}}, change...)...)
}

// deleting marks an object as deleted.
func deleting[T metav1.Object](object T) {
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
}

func (w *world) attachment(name string) *storagev1.VolumeAttachment {
	w.t.Helper()
	va, err := w.Core.StorageV1().VolumeAttachments().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return va
}

func (w *world) volume(name string) *corev1.PersistentVolume {
	w.t.Helper()
	pv, err := w.Core.CoreV1().PersistentVolumes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pv
}

// attached waits until the attachment says that it is.
func (w *world) attached(name string) *storagev1.VolumeAttachment {
	w.t.Helper()
	w.Eventually(func() error {
		if va := w.attachment(name); !va.Status.Attached {
			return fmt.Errorf("not attached: %+v", va.Status.AttachError)
		}
		return nil
	})
	return w.attachment(name)
}

// gone waits until the attachment does not exist.
func (w *world) gone(name string) {
	w.t.Helper()
	w.Eventually(func() error {
		va, err := w.Core.StorageV1().VolumeAttachments().Get(w.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("still there: %+v", va.Status.DetachError)
	})
}

// detaches deletes an attachment and expects that the driver has no volume afterwards.
func (w *world) detaches(va *storagev1.VolumeAttachment) {
	w.t.Helper()
	w.Delete(va)
	w.gone(va.Name)
	w.published(nil)
}

// fails waits for an error in the attachment's status.
func (w *world) fails(name string) storagev1.VolumeError {
	w.t.Helper()
	var shown *storagev1.VolumeError
	w.Eventually(func() error {
		va := w.attachment(name)
		if shown = va.Status.AttachError; va.DeletionTimestamp != nil {
			shown = va.Status.DetachError
		}
		if shown == nil {
			return errors.New("no error is shown")
		}
		return nil
	})
	return *shown
}

// published compares where the driver has the volumes.
func (w *world) published(want map[string][]string) {
	w.t.Helper()
	got := w.driver.Attachments()
	if !maps.EqualFunc(got, want, slices.Equal) {
		w.t.Errorf("the driver has %v, want %v", got, want)
	}
}

// writes are the requests that changed something, "verb resource[/status]".
func (w *world) writes() []string {
	var all []string
	for _, q := range w.Writes() {
		text := q.Verb + " " + q.Resource
		if q.Subresource != "" {
			text += "/" + q.Subresource
		}
		all = append(all, text)
	}
	return all
}

func (w *world) wroteOnly(want ...string) {
	w.t.Helper()
	if got := w.writes(); !slices.Equal(got, want) {
		w.t.Errorf("wrote %q, want %q", got, want)
	}
}

// requests returns the requests of an RPC as they come.
func requests[T any](w *world, rpc string) <-chan T {
	got := make(chan T, 1000)
	earlier := w.driver.Before
	w.driver.Before = func(ctx context.Context, name string, request any) error {
		if q, ok := request.(T); ok && name == rpc {
			got <- q
		}
		if earlier != nil {
			return earlier(ctx, name, request)
		}
		return nil
	}
	return got
}

func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(time.Minute):
		t.Fatal("the driver was not called")
		panic("unreachable")
	}
}

func mustContain(text, want string) error {
	if !strings.Contains(text, want) {
		return fmt.Errorf("%q does not contain %q", text, want)
	}
	return nil
}

// volumeGone waits until the PersistentVolume does not exist.
func (w *world) volumeGone(name string) {
	w.t.Helper()
	w.Eventually(func() error {
		pv, err := w.Core.CoreV1().PersistentVolumes().Get(w.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %q, %w", pv.Finalizers, err)
	})
}

// block stops the first call of an RPC: it closes begun and waits for proceed.
func block(rpc string, begun chan<- struct{}, proceed <-chan struct{}) func(context.Context, string, any) error {
	var once sync.Once
	return func(_ context.Context, name string, _ any) error {
		if name == rpc {
			once.Do(func() {
				close(begun)
				<-proceed
			})
		}
		return nil
	}
}
