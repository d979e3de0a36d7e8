package attach

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

func TestAttach_writesTwiceAndOnceMoreForTheFirstAttachmentOfAVolume(t *testing.T) {
	protected := volume("shared", func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"a", finalizer} })
	w := newWorld(t, volume("pv"), protected, node("n1"), node("n2"))
	w.run()
	w.Add(attachment("va1", "pv", "n1"))
	va := w.attached("va1")
	if !slices.Equal(va.Finalizers, []string{finalizer}) {
		t.Errorf("finalizers %q", va.Finalizers)
	}
	want := map[string]string{NodeIDAnnotation: "id-n1", HandleAnnotation: "handle-pv"}
	if !maps.Equal(va.Annotations, want) {
		t.Errorf("annotations %v, want %v", va.Annotations, want)
	}
	if want := map[string]string{"device": "1"}; !maps.Equal(va.Status.AttachmentMetadata, want) || va.Status.AttachError != nil {
		t.Errorf("status %+v", va.Status)
	}
	if pv := w.volume("pv"); !slices.Equal(pv.Finalizers, []string{finalizer}) {
		t.Errorf("the PersistentVolume has finalizers %q", pv.Finalizers)
	}
	w.wroteOnly("patch persistentvolumes", "patch volumeattachments", "patch volumeattachments/status")
	w.published(map[string][]string{"handle-pv": {"id-n1"}})

	w.Add(attachment("va2", "shared", "n2"))
	w.attached("va2")
	if got := w.writes()[3:]; !slices.Equal(got, []string{"patch volumeattachments", "patch volumeattachments/status"}) {
		t.Errorf("a protected volume: wrote %q", got)
	}
	if calls := w.driver.Calls(); len(calls) != 2 {
		t.Errorf("the driver was called: %q", calls)
	}
}

func TestAttach_keepsOtherFinalizersAndAnnotations(t *testing.T) {
	w := newWorld(t, node("n1"), volume("pv", func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} }))
	w.run()
	w.Add(attachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Finalizers = []string{"example.com/mine"}
		va.Annotations = map[string]string{"example.com/note": "x"}
	}))
	va := w.attached("va")
	if !slices.Equal(va.Finalizers, []string{"example.com/mine", finalizer}) || va.Annotations["example.com/note"] != "x" {
		t.Errorf("finalizers %q, annotations %v", va.Finalizers, va.Annotations)
	}
	if pv := w.volume("pv"); !slices.Equal(pv.Finalizers, []string{"kubernetes.io/pv-protection", finalizer}) {
		t.Errorf("the PersistentVolume has finalizers %q", pv.Finalizers)
	}
}

func TestAttach_sendsTheDriverWhatTheVolumeIs(t *testing.T) {
	w := newWorld(t, node("n1"), apiserver.Secret("ns", "keys", map[string]string{"key": "value"}))
	w.driver.Controller = append(w.driver.Controller,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	published := requests[*csi.ControllerPublishVolumeRequest](w, "ControllerPublishVolume")
	w.run(Options{Reconcile: -1, DefaultFSType: "ext4"})

	w.Add(volume("mounted", func(pv *corev1.PersistentVolume) {
		pv.Spec.MountOptions = []string{"noatime"}
		pv.Spec.CSI.ReadOnly = true
		pv.Spec.CSI.VolumeAttributes = map[string]string{"kind": "fast"}
		pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "keys"}
	}), attachment("va1", "mounted", "n1"))
	got := next(t, published)
	mount := got.GetVolumeCapability().GetMount()
	if got.GetVolumeId() != "handle-mounted" || got.GetNodeId() != "id-n1" || !got.GetReadonly() ||
		got.GetSecrets()["key"] != "value" || got.GetVolumeContext()["kind"] != "fast" ||
		mount.GetFsType() != "ext4" || !slices.Equal(mount.GetMountFlags(), []string{"noatime"}) ||
		got.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("the driver got %v", got)
	}
	va := w.attached("va1")
	if va.Annotations[SecretNameAnnotation] != "keys" || va.Annotations[SecretNamespaceAnnotation] != "ns" {
		t.Errorf("annotations %v do not name the secret", va.Annotations)
	}

	block := corev1.PersistentVolumeBlock
	w.Add(volume("raw", func(pv *corev1.PersistentVolume) {
		pv.Spec.VolumeMode = &block
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany}
	}), attachment("va2", "raw", "n1"))
	if got := next(t, published); got.GetVolumeCapability().GetBlock() == nil || got.GetReadonly() ||
		got.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
		t.Errorf("the driver got %v", got)
	}
}

func TestAttach_sendsNoReadonlyToADriverThatMayMisreadIt(t *testing.T) {
	w := newWorld(t, node("n1"), volume("pv", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }))
	published := requests[*csi.ControllerPublishVolumeRequest](w, "ControllerPublishVolume")
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	if next(t, published).GetReadonly() {
		t.Error("readonly was sent without PUBLISH_READONLY")
	}
}

func TestAttach_servesAnInlineCSIVolume(t *testing.T) {
	w := newWorld(t, node("n1"))
	w.run()
	inline := volume("x").Spec
	va := attachment("va", "", "n1")
	va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &inline}
	w.Add(va)
	w.attached("va")
	w.wroteOnly("patch volumeattachments", "patch volumeattachments/status")
	w.detaches(va)
}

func TestAttach_ignoresWhatIsAttachedOrForeign(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"),
		publishedAttachment("done", "pv", "n1"),
		attachment("foreign", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
	w.run()
	w.Add(attachment("last", "pv", "n1"))
	w.attached("last")
	if calls := w.driver.Calls(); len(calls) != 1 {
		t.Errorf("the driver was called: %q", calls)
	}
	if va := w.attachment("foreign"); len(va.Finalizers) > 0 || va.Status.AttachError != nil {
		t.Errorf("another driver's attachment was touched: %+v", va)
	}
}

// Each case ends in an error that names the fault. Nothing is published, and only
// the error is written.
func TestAttach_rejects(t *testing.T) {
	intree := func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}
	}
	unregistered := node("n1")
	unregistered.Spec.Drivers = unregistered.Spec.Drivers[:1]
	inlineOf := func(change func(*corev1.PersistentVolume)) func(*storagev1.VolumeAttachment) {
		spec := volume("x", change).Spec
		return func(va *storagev1.VolumeAttachment) {
			va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &spec}
		}
	}
	for name, c := range map[string]struct {
		pv   *corev1.PersistentVolume
		node *storagev1.CSINode
		va   func(*storagev1.VolumeAttachment)
		want string
	}{
		"no source":      {va: func(va *storagev1.VolumeAttachment) { va.Spec.Source = storagev1.VolumeAttachmentSource{} }, want: "neither"},
		"two sources":    {va: func(va *storagev1.VolumeAttachment) { va.Spec.Source.InlineVolumeSpec = &volume("x").Spec }, want: "both"},
		"no volume":      {want: "PersistentVolume pv: it does not exist"},
		"volume deleted": {pv: volume("pv", func(pv *corev1.PersistentVolume) { deleting(pv); pv.Finalizers = []string{"x"} }), want: "is being deleted"},
		"other driver":   {pv: volume("pv", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "x.example.com" }), want: "belongs to driver x.example.com"},
		"in-tree volume": {pv: volume("pv", intree), want: "is not a CSI volume"},
		"migrated volume": {pv: volume("pv", intree, func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{migration.MigratedToAnnotation: driverName}
		}), want: "has no translation"},
		"in-tree inline": {va: inlineOf(intree), want: "translates such volumes"},
		"foreign inline": {va: inlineOf(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "x.example.com" }), want: "belongs to driver x.example.com"},
		"no access mode": {pv: volume("pv", func(pv *corev1.PersistentVolume) { pv.Spec.AccessModes = nil }), node: node("n1"), want: "no access mode"},
		"no CSINode":     {pv: volume("pv"), want: "no CSINode object"},
		"not registered": {pv: volume("pv"), node: unregistered, want: "is not registered on node n1"},
		"secret missing": {pv: volume("pv", withSecret), node: node("n1"), want: "read Secret ns/keys"},
		"volume was other": {pv: volume("pv"), node: node("n1"), va: func(va *storagev1.VolumeAttachment) {
			*va = *publishedAttachment("va", "earlier", "n1")
			va.Spec = attachment("va", "pv", "n1").Spec
			va.Status.Attached = false
		}, want: "delete the VolumeAttachment"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.pv != nil {
				w.Add(c.pv)
			}
			if c.node != nil {
				w.Add(c.node)
			}
			w.run()
			va := attachment("va", "pv", "n1")
			if c.va != nil {
				c.va(va)
			}
			w.Add(va)
			if shown := w.fails("va"); !strings.Contains(shown.Message, c.want) || shown.ErrorCode != nil || shown.Time.IsZero() {
				t.Errorf("shown: %+v, want %q", shown, c.want)
			}
			w.published(nil)
			for _, write := range w.writes() {
				if write != "patch volumeattachments/status" && name != "volume was other" {
					t.Errorf("wrote %s", write)
				}
			}
		})
	}
}

func withSecret(pv *corev1.PersistentVolume) {
	pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "keys"}
}

func TestAttach_continuesWhenTheVolumeOrTheRegistrationAppears(t *testing.T) {
	w := newWorld(t)
	w.Env.Retry.Start, w.Env.Retry.Max = 1<<40, 1<<40 // no retry after a pause
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	w.fails("va")
	w.Add(volume("pv"))
	w.Eventually(func() error {
		return mustContain(w.attachment("va").Status.AttachError.Message, "no CSINode object")
	})
	w.Add(node("n1"))
	if va := w.attached("va"); va.Status.AttachError != nil {
		t.Errorf("the error stays: %+v", va.Status.AttachError)
	}
}

func TestAttach_detachesFromANodeThatRegisteredWithAnotherID(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Annotations[NodeIDAnnotation] = "id-before"
		va.Status.Attached = false
	}))
	w.driver.SetAttached("handle-pv", "id-before", true)
	w.run()
	if va := w.attached("va"); va.Annotations[NodeIDAnnotation] != "id-n1" {
		t.Errorf("the attachment names node %s", va.Annotations[NodeIDAnnotation])
	}
	w.published(map[string][]string{"handle-pv": {"id-n1"}})
}

func TestAttach_acknowledgesOnlyIfTheDriverHasNothingToAttach(t *testing.T) {
	w := newWorld(t)
	w.driver.Controller = nil
	w.run()
	w.Add(attachment("va", "absent", "absent"))
	if va := w.attached("va"); len(va.Finalizers) > 0 {
		t.Errorf("finalizers %q", va.Finalizers)
	}
	w.wroteOnly("patch volumeattachments/status")
	if calls := w.driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
}

func TestAttach_ofANodesControllerServesOnlyThatNode(t *testing.T) {
	w := newWorld(t, volume("pv1"), volume("pv2"), node("n1"), node("n2"))
	w.Env.Scope.Node = "n2"
	w.run()
	w.Add(attachment("va1", "pv1", "n1"), attachment("va2", "pv2", "n2"))
	w.attached("va2")
	if w.attachment("va1").Status.Attached {
		t.Error("another node's volume was attached")
	}
}
