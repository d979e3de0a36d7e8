package attach

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

func TestNeedsSync(t *testing.T) {
	shown := &storagev1.VolumeError{Message: "no", Time: metav1.Now()}
	controller := &Controller{finalizer: finalizer}
	for name, c := range map[string]struct {
		change func(*storagev1.VolumeAttachment)
		want   bool
	}{
		"resourceVersion":     {func(*storagev1.VolumeAttachment) {}, false},
		"managedFields":       {func(va *storagev1.VolumeAttachment) { va.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false},
		"generation":          {func(va *storagev1.VolumeAttachment) { va.Generation = 2 }, false},
		"attachError":         {func(va *storagev1.VolumeAttachment) { va.Status.AttachError = shown }, false},
		"detachError":         {func(va *storagev1.VolumeAttachment) { va.Status.DetachError = shown }, false},
		"attached":            {func(va *storagev1.VolumeAttachment) { va.Status.Attached = false }, true},
		"attachmentMetadata":  {func(va *storagev1.VolumeAttachment) { va.Status.AttachmentMetadata = map[string]string{"a": "b"} }, true},
		"deletion":            {func(va *storagev1.VolumeAttachment) { deleting(va) }, true},
		"own finalizer":       {func(va *storagev1.VolumeAttachment) { va.Finalizers = nil }, false},
		"other finalizer":     {func(va *storagev1.VolumeAttachment) { va.Finalizers = append(va.Finalizers, "example.com/other") }, true},
		"own record":          {func(va *storagev1.VolumeAttachment) { va.Annotations = nil }, false},
		"other annotation":    {func(va *storagev1.VolumeAttachment) { va.Annotations["example.com/other"] = "x" }, true},
		"labels":              {func(va *storagev1.VolumeAttachment) { va.Labels = map[string]string{"a": "b"} }, true},
		"identity":            {func(va *storagev1.VolumeAttachment) { va.UID = "another" }, true},
		"error and deletion":  {func(va *storagev1.VolumeAttachment) { va.Status.AttachError = shown; deleting(va) }, true},
		"same, once more":     {func(va *storagev1.VolumeAttachment) { va.ResourceVersion = "1" }, true},
		"same with its error": {func(va *storagev1.VolumeAttachment) { va.ResourceVersion = "1"; va.Status.AttachError = shown }, true},
	} {
		before := publishedAttachment("va", "pv", "n1")
		before.ResourceVersion, before.Generation = "1", 1
		after := before.DeepCopy()
		after.ResourceVersion = "2"
		c.change(after)
		if got := controller.needsSync(before, after); got != c.want {
			t.Errorf("a change of %s: %t", name, got)
		}
		if after.ResourceVersion == "" || c.want == false && name == "attachError" && after.Status.AttachError == nil {
			t.Errorf("%s: the shared object was changed", name)
		}
	}
}

func TestVolumeError_fitsIntoTheStatus(t *testing.T) {
	for name, text := range map[string]string{
		"short": "no", "exact": strings.Repeat("x", cluster.MaxMessage), "long": strings.Repeat("x", 5000), "long, of several bytes": strings.Repeat("ж", 5000),
	} {
		shown := volumeError(errors.New(text), metav1.NewTime(time.Unix(1, 0)))
		if len(shown.Message) > cluster.MaxMessage || !utf8.ValidString(shown.Message) || len(shown.Message) < min(len(text), cluster.MaxMessage-4) {
			t.Errorf("%s: %d bytes: %q", name, len(shown.Message), shown.Message)
		}
	}
}

func TestKeyLocks_giveAKeyToOneHolderAtATime(t *testing.T) {
	var keys keyLocks
	again := 0
	done, ok := keys.tryLock("a", nil)
	if !ok || !keys.locked("a") {
		t.Fatal("a free key was not given")
	}
	for range 2 {
		if _, ok := keys.tryLock("a", func() { again++ }); ok {
			t.Fatal("a key was given twice")
		}
	}
	if other, ok := keys.tryLock("b", nil); !ok {
		t.Error("another key was not given")
	} else {
		other()
	}
	done()
	if again != 1 || keys.locked("a") {
		t.Errorf("called again %d times, taken %t", again, keys.locked("a"))
	}
}
