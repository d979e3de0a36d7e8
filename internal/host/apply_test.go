package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// newApplier is a host with nothing but its store.
func newApplier(t *testing.T) *Host {
	t.Helper()
	opened, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return &Host{store: opened}
}

func (h *Host) try(text string) (api.ApplyResult, error) {
	return h.Apply(context.Background(), []manifest.File{{Name: "m.yaml", Data: []byte(text)}}, api.ApplyOptions{})
}

func mustApply(t *testing.T, h *Host, text string) api.ApplyResult {
	t.Helper()
	result, err := h.try(text)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// rewrite changes an object as a controller does.
func rewrite[T any](t *testing.T, h *Host, table func(*store.Tx) store.Table[T], key string, change func(*T)) {
	t.Helper()
	err := h.store.Update(func(tx *store.Tx) error {
		object, err := table(tx).Get(key)
		if err != nil || object == nil {
			return fmt.Errorf("%s: %w", key, errors.Join(err, errors.New("is not there")))
		}
		change(object)
		return table(tx).Put(key, object)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func stored[T any](t *testing.T, h *Host, table func(*store.Tx) store.Table[T], key string) (object *T) {
	t.Helper()
	err := h.store.View(func(tx *store.Tx) (err error) {
		object, err = table(tx).Get(key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

const (
	aClass   = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: c}\nprovisioner: d.example\nparameters: {a: b}\nallowVolumeExpansion: true\n"
	aClaim   = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, labels: {a: b}}\nspec: {storageClassName: c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}\n"
	aPod     = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: main, image: one, command: [cat], volumeMounts: [{name: v, mountPath: /v}]}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n"
	aSecret  = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n"
	aConfig  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {level: debug}\nbinaryData: {icon: aGk=}\n"
	aDriver  = "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example}\nspec: {attachRequired: false, volumeLifecycleModes: [Persistent]}\n"
	anotherC = "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\ndriverName: d.example\nparameters: {iops: \"1\"}\n"
	aVolume  = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: d.example, volumeHandle: h}}\n"
	aSnap    = "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: snap}\nspec: {source: {persistentVolumeClaimName: data}}\n"
	aContent = "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotContent\nmetadata: {name: content}\nspec: {driver: d.example, deletionPolicy: Retain, volumeSnapshotRef: {namespace: default, name: snap}, source: {snapshotHandle: h}}\n"
	aSnapC   = "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: sc}\ndriver: d.example\ndeletionPolicy: Delete\n"
	aSpace   = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {a: b}}\n"
)

func everything() string {
	return strings.Join([]string{aPod, aClaim, aSecret, aConfig, aDriver, aClass, anotherC, aVolume, aSnap, aContent, aSnapC, aSpace}, "---\n")
}

func claims(tx *store.Tx) store.Table[corev1.PersistentVolumeClaim] { return tx.Claims() }
func podsOf(tx *store.Tx) store.Table[corev1.Pod]                   { return tx.Pods() }
func volumesOf(tx *store.Tx) store.Table[corev1.PersistentVolume]   { return tx.Volumes() }
func secrets(tx *store.Tx) store.Table[corev1.Secret]               { return tx.Secrets() }
func drivers(tx *store.Tx) store.Table[storagev1.CSIDriver]         { return tx.Drivers() }

func TestApply_createsMissingObjectsAndKeepsEqualOnes(t *testing.T) {
	h := newApplier(t)
	first := mustApply(t, h, everything())
	if len(first.Applied) != 12 || first.Applied[0] != (api.Applied{Kind: "Pod", Key: "default/p", Action: api.Created}) {
		t.Errorf("the first apply answered %+v", first.Applied)
	}
	pvc := stored(t, h, claims, "default/data")
	if pvc.UID == "" || pvc.CreationTimestamp.IsZero() || pvc.Generation != 1 || pvc.Status.Phase != corev1.ClaimPending ||
		len(pvc.Finalizers) != 1 || *pvc.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Errorf("the claim is %+v", pvc)
	}
	secret := stored(t, h, secrets, "default/s")
	if string(secret.Data["password"]) != "hunter2" || len(secret.StringData) != 0 {
		t.Error("stringData is not merged into data")
	}
	before := version(t, h)
	for _, applied := range mustApply(t, h, everything()).Applied {
		if applied.Action != api.Unchanged {
			t.Errorf("%s %s is %s by the second apply", applied.Kind, applied.Key, applied.Action)
		}
	}
	if after := version(t, h); after != before {
		t.Errorf("applying the same again wrote %d changes", after-before)
	}
}

func version(t *testing.T, h *Host) (version uint64) {
	t.Helper()
	if err := h.store.View(func(tx *store.Tx) error { version = tx.Version(); return nil }); err != nil {
		t.Fatal(err)
	}
	return version
}

func TestApply_whatControllersWroteStays(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aClass+"---\n"+aClaim+"---\n"+aDriver)
	bind(t, h)
	rewrite(t, h, claims, "default/data", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": "d.example"}
		pvc.Finalizers = append(pvc.Finalizers, "snapshot.storage.kubernetes.io/pvc-as-source-protection")
	})
	result := mustApply(t, h, strings.Replace(aClaim, "labels: {a: b}", "labels: {c: d}", 1))
	if result.Applied[0].Action != api.Configured {
		t.Errorf("it is %s", result.Applied[0].Action)
	}
	pvc := stored(t, h, claims, "default/data")
	if len(pvc.Labels) != 1 || pvc.Labels["c"] != "d" {
		t.Errorf("the labels are %v; want the given one only", pvc.Labels)
	}
	if len(pvc.Annotations) != 1 || len(pvc.Finalizers) != 2 || pvc.Spec.VolumeName != "pv-1" || pvc.Status.Phase != corev1.ClaimBound || pvc.Generation != 1 {
		t.Errorf("something of the controllers' is gone: %+v", pvc)
	}
}

// bind does the work of the claim's controllers: a volume of 2 GiB.
func bind(t *testing.T, h *Host) {
	t.Helper()
	rewrite(t, h, claims, "default/data", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.VolumeName, pvc.Status.Phase = "pv-1", corev1.ClaimBound
		pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	})
}

// TestApply_refusesToChangeImmutableFields has one line for each field that the
// API server keeps as it is.
func TestApply_refusesToChangeImmutableFields(t *testing.T) {
	cases := []struct{ name, object, old, new, want string }{
		{"StorageClass provisioner", aClass, "provisioner: d.example", "provisioner: e.example", `StorageClass "c": provisioner: cannot be changed from "d.example" to "e.example"`},
		{"StorageClass parameters", aClass, "{a: b}", "{a: c}", "parameters.a: cannot be changed"},
		{"StorageClass parameters, one more", aClass, "{a: b}", "{a: b, x: z}", "parameters.x: cannot be changed"},
		{"StorageClass reclaimPolicy", aClass, "allowVol", "reclaimPolicy: Retain\nallowVol", `reclaimPolicy: cannot be changed from "Delete" to "Retain"`},
		{"StorageClass volumeBindingMode", aClass, "allowVol", "volumeBindingMode: WaitForFirstConsumer\nallowVol", "volumeBindingMode: cannot be changed"},
		{"VolumeAttributesClass driverName", anotherC, "d.example", "e.example", "driverName: cannot be changed"},
		{"VolumeAttributesClass parameters", anotherC, `iops: "1"`, `iops: "2"`, "parameters.iops: cannot be changed"},
		{"CSIDriver attachRequired", aDriver, "attachRequired: false", "attachRequired: true", "spec.attachRequired: cannot be changed"},
		{"CSIDriver volumeLifecycleModes", aDriver, "[Persistent]", "[Persistent, Ephemeral]", "spec.volumeLifecycleModes: cannot be changed"},
		{"Secret type", aSecret, "stringData", "type: x\nstringData", "type: cannot be changed; delete the Secret"},
		{"claim accessModes", aClaim, "[ReadWriteOnce]", "[ReadWriteMany]", "spec.accessModes[0]: cannot be changed"},
		{"claim volumeMode", aClaim, "{storageClassName", "{volumeMode: Block, storageClassName", `spec.volumeMode: cannot be changed from "Filesystem" to "Block"`},
		{"claim storageClassName", aClaim, "storageClassName: c", "storageClassName: d", "spec.storageClassName: cannot be changed"},
		{"claim selector", aClaim, "{storageClassName", "{selector: {matchLabels: {a: b}}, storageClassName", "spec.selector: cannot be changed"},
		{"claim dataSource", aClaim, "{storageClassName", "{dataSource: {kind: PersistentVolumeClaim, name: x}, storageClassName", "spec.dataSource: cannot be changed"},
		{"claim limits", aClaim, "resources: {", "resources: {limits: {storage: 3Gi}, ", "spec.resources.limits: cannot be changed"},
		{"a pending claim's size", aClaim, "2Gi", "3Gi", "spec.resources.requests.storage: cannot be changed before the claim has a volume"},
		{"a pending claim's attributes", aClaim, "{storageClassName", "{volumeAttributesClassName: gold, storageClassName", "spec.volumeAttributesClassName: cannot be changed before the claim has a volume"},
		{"volume driver", aVolume, "driver: d.example", "driver: e.example", "spec.csi.driver: cannot be changed"},
		{"volume handle", aVolume, "volumeHandle: h", "volumeHandle: i", "spec.csi.volumeHandle: cannot be changed"},
		{"volume fsType", aVolume, "volumeHandle: h", "volumeHandle: h, fsType: xfs", "spec.csi.fsType: cannot be changed"},
		{"volume attributes", aVolume, "volumeHandle: h", "volumeHandle: h, volumeAttributes: {a: b}", "spec.csi.volumeAttributes: cannot be changed"},
		{"volume secret", aVolume, "volumeHandle: h", "volumeHandle: h, nodeStageSecretRef: {name: a, namespace: b}", "spec.csi.nodeStageSecretRef: cannot be changed"},
		{"volume mode", aVolume, "{capacity", "{volumeMode: Block, capacity", "spec.volumeMode: cannot be changed"},
		{"pod command", aPod, "[cat]", "[ls]", "spec.containers[0].command[0]: cannot be changed"},
		{"pod args", aPod, "[cat]", "[cat], args: [x]", "spec.containers[0].args: cannot be changed"},
		{"pod restartPolicy", aPod, "spec:\n", "spec:\n  restartPolicy: Never\n", "spec.restartPolicy: cannot be changed"},
		{"pod volumes", aPod, "claimName: data", "claimName: other", "spec.volumes[0].persistentVolumeClaim.claimName: cannot be changed"},
		{"pod fsGroup", aPod, "spec:\n", "spec:\n  securityContext: {fsGroup: 5}\n", "spec.securityContext: cannot be changed"},
		{"pod containers", aPod, "containers: [", "containers: [{name: two, command: [ls]}, ", "spec.containers: cannot be changed"},
		{"snapshot source", aSnap, "persistentVolumeClaimName: data", "persistentVolumeClaimName: other", "spec.source.persistentVolumeClaimName: cannot be changed"},
		{"snapshot source's kind", aSnap, "persistentVolumeClaimName: data", "volumeSnapshotContentName: data", "spec.source.volumeSnapshotContentName: cannot be changed"},
		{"content source", aContent, "snapshotHandle: h", "snapshotHandle: i", "spec.source.snapshotHandle: cannot be changed"},
		{"content driver", aContent, "driver: d.example", "driver: e.example", "spec.driver: cannot be changed"},
		{"content snapshot", aContent, "name: snap", "name: other", "spec.volumeSnapshotRef.name: cannot be changed"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, c.object)
			before := version(t, h)
			_, err := h.try(changed(t, c.object, c.old, c.new))
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, api.ErrInvalid) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if version(t, h) != before {
				t.Error("something was written")
			}
		})
	}
}

func changed(t *testing.T, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("%q is not in %s", old, text)
	}
	return strings.Replace(text, old, new, 1)
}

func TestApply_changesWhatMayChange(t *testing.T) {
	cases := []struct{ name, object, old, new string }{
		{"StorageClass expansion", aClass, "allowVolumeExpansion: true", "allowVolumeExpansion: false"},
		{"StorageClass mountOptions", aClass, "allowVol", "mountOptions: [noatime]\nallowVol"},
		{"CSIDriver podInfoOnMount", aDriver, "attachRequired: false", "attachRequired: false, podInfoOnMount: true"},
		{"CSIDriver fsGroupPolicy", aDriver, "attachRequired: false", "attachRequired: false, fsGroupPolicy: None"},
		{"CSIDriver requiresRepublish", aDriver, "attachRequired: false", "attachRequired: false, requiresRepublish: true"},
		{"Secret data", aSecret, "hunter2", "hunter3"},
		{"Secret immutable", aSecret, "stringData", "immutable: true\nstringData"},
		{"volume policy", aVolume, "{capacity", "{persistentVolumeReclaimPolicy: Delete, capacity"},
		{"volume secret for growth", aVolume, "volumeHandle: h", "volumeHandle: h, controllerExpandSecretRef: {name: a, namespace: b}"},
		{"volume attributes class", aVolume, "{capacity", "{volumeAttributesClassName: gold, capacity"},
		{"volume size", aVolume, "storage: 1Gi", "storage: 2Gi"},
		{"volume labels", aVolume, "{name: pv}", "{name: pv, labels: {a: b}}"},
		{"volume claimRef", aVolume, "{capacity", "{claimRef: {namespace: default, name: data}, capacity"},
		{"pod labels", aPod, "{name: p}", "{name: p, labels: {a: b}}"},
		{"pod image, which means nothing here", aPod, "image: one", "image: two"},
		{"snapshot class while it is not bound", aSnap, "{source", "{volumeSnapshotClassName: sc, source"},
		{"content policy", aContent, "Retain", "Delete"},
		{"snapshot class policy", aSnapC, "Delete", "Retain"},
		{"namespace labels", aSpace, "a: b", "a: c"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, c.object)
			text := changed(t, c.object, c.old, c.new)
			if result := mustApply(t, h, text); result.Applied[0].Action != api.Configured {
				t.Errorf("it is %s", result.Applied[0].Action)
			}
			if result := mustApply(t, h, text); result.Applied[0].Action != api.Unchanged {
				t.Errorf("again it is %s", result.Applied[0].Action)
			}
		})
	}
}

// The transitions of a request are those of KEP 1790.
func TestApply_sizesOfABoundClaim(t *testing.T) {
	cases := []struct{ name, asked, given, want string }{
		{"grows", "2Gi", "3Gi", ""},
		{"the same in other words", "2Gi", "2048Mi", ""},
		{"a growth is lowered", "5Gi", "3Gi", ""},
		{"not to what there is", "5Gi", "2Gi", "a volume cannot shrink: it has 2Gi"},
		{"not below", "5Gi", "1Gi", "a volume cannot shrink: it has 2Gi"},
		{"no shrinking", "2Gi", "1Gi", "spec.resources.requests.storage: a volume cannot shrink: it has 2Gi"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, aClass+"---\n"+aClaim)
			bind(t, h)
			if c.asked != "2Gi" {
				mustApply(t, h, changed(t, aClaim, "2Gi", c.asked))
			}
			_, err := h.try(changed(t, aClaim, "2Gi", c.given))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestApply_growsOnlyWhereTheClassAllowsIt(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, changed(t, aClass, "allowVolumeExpansion: true", "allowVolumeExpansion: false")+"---\n"+aClaim)
	bind(t, h)
	if _, err := h.try(changed(t, aClaim, "2Gi", "3Gi")); err == nil || !strings.Contains(err.Error(), `StorageClass "c" does not say allowVolumeExpansion: true`) {
		t.Errorf("got %v", err)
	}
	mustApply(t, h, aClass+"---\n"+changed(t, aClaim, "2Gi", "3Gi"))
	if pvc := stored(t, h, claims, "default/data"); pvc.Generation != 2 {
		t.Errorf("the generation is %d", pvc.Generation)
	}
}

func TestApply_attributesOfABoundClaim(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aClass+"---\n"+aClaim+"---\n"+anotherC)
	bind(t, h)
	gold := changed(t, aClaim, "{storageClassName", "{volumeAttributesClassName: gold, storageClassName")
	mustApply(t, h, gold)
	mustApply(t, h, aClaim) // before the controllers ran
	mustApply(t, h, gold)
	rewrite(t, h, claims, "default/data", func(pvc *corev1.PersistentVolumeClaim) {
		name := "gold"
		pvc.Status.CurrentVolumeAttributesClassName = &name
	})
	if _, err := h.try(aClaim); err == nil || !strings.Contains(err.Error(), `spec.volumeAttributesClassName: cannot be taken away: the volume has the attributes of "gold"`) {
		t.Errorf("got %v", err)
	}
}

func TestApply_aBoundVolumeKeepsItsSizeAndItsClaim(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aVolume)
	rewrite(t, h, volumesOf, "pv", func(volume *corev1.PersistentVolume) {
		volume.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: "data", UID: "u"}
		volume.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("5Gi")
	})
	result := mustApply(t, h, aVolume)
	if result.Applied[0].Action != api.Unchanged || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "stays at 5Gi") {
		t.Errorf("got %+v", result)
	}
	if _, err := h.try(changed(t, aVolume, "{capacity", "{claimRef: {namespace: default, name: other}, capacity")); err == nil || !strings.Contains(err.Error(), "spec.claimRef.name: cannot be changed") {
		t.Errorf("got %v", err)
	}
}

func TestApply_anImmutableSecretStays(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, changed(t, aSecret, "stringData", "immutable: true\nstringData"))
	for _, text := range []string{aSecret, changed(t, changed(t, aSecret, "stringData", "immutable: true\nstringData"), "hunter2", "hunter3")} {
		_, err := h.try(text)
		if err == nil || !strings.Contains(err.Error(), "it is immutable") || strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "aHVudGVy") {
			t.Errorf("got %v", err)
		}
	}
}

func TestApply_isAllOrNothing(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aClass)
	_, err := h.try(aSecret + "---\n" + changed(t, aClass, "provisioner: d.example", "provisioner: e.example") + "---\n" + aPod)
	if err == nil || !strings.Contains(err.Error(), "m.yaml: document 2: StorageClass") {
		t.Errorf("got %v", err)
	}
	if stored(t, h, secrets, "default/s") != nil || stored(t, h, podsOf, "default/p") != nil {
		t.Error("a part was applied")
	}
}

func TestApply_dryRunWritesNothing(t *testing.T) {
	h := newApplier(t)
	before := version(t, h)
	result, err := h.Apply(context.Background(), []manifest.File{{Name: "m.yaml", Data: []byte(everything())}}, api.ApplyOptions{DryRun: true})
	if err != nil || len(result.Applied) != 12 {
		t.Fatalf("got %+v, %v", result, err)
	}
	if version(t, h) != before || stored(t, h, podsOf, "default/p") != nil {
		t.Error("something was written")
	}
}

func TestApply_conflicts(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aSecret)
	cases := []struct{ name, text, want string }{
		{"another uid", changed(t, aSecret, "{name: s}", "{name: s, uid: x}"), "metadata.uid: is that of another object"},
		{"an old version", changed(t, aSecret, "{name: s}", `{name: s, resourceVersion: "1"}`), "metadata.resourceVersion: the object has changed since it was read (1, now"},
		{"a version of nothing", changed(t, aSpace, "{name: team,", `{name: team, resourceVersion: "1",`), "metadata.resourceVersion: is that of an object that is not there any more"},
	}
	for _, c := range cases {
		if _, err := h.try(c.text); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	now := stored(t, h, secrets, "default/s").ResourceVersion
	mustApply(t, h, changed(t, changed(t, aSecret, "{name: s}", `{name: s, resourceVersion: "`+now+`"}`), "hunter2", "hunter3"))
}

func TestApply_refusesAnObjectThatIsBeingDeleted(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aClaim)
	kind, _ := store.KindOf("persistentvolumeclaims")
	if _, err := h.DeleteObject(context.Background(), kind, "default/data", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.try(aClaim); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("got %v", err)
	}
}

func TestApply_twoAtOnceLoseNothing(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aSpace)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			text := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: s%d, namespace: n%d}\nstringData: {a: b}\n---\n%s", i, i%3, changed(t, aSpace, "a: b", fmt.Sprintf("a: b%d", i)))
			if _, err := h.try(text); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range 20 {
		if stored(t, h, secrets, fmt.Sprintf("n%d/s%d", i%3, i)) == nil {
			t.Errorf("secret %d is lost", i)
		}
	}
}

func TestApply_namespacesAreMadeWhenTheyAreUsed(t *testing.T) {
	h := newApplier(t)
	result := mustApply(t, h, changed(t, aSecret, "{name: s}", "{name: s, namespace: new}"))
	if len(result.Applied) != 2 || result.Applied[0] != (api.Applied{Kind: "Namespace", Key: "new", Action: api.Created}) {
		t.Errorf("got %+v", result.Applied)
	}
	if result := mustApply(t, h, changed(t, aSecret, "{name: s}", "{name: s, namespace: new}")); len(result.Applied) != 1 {
		t.Errorf("again: %+v", result.Applied)
	}
}

func TestApply_namesTheMissingObjects(t *testing.T) {
	inline := "apiVersion: v1\nkind: Pod\nmetadata: {name: i}\nspec:\n  containers: [{name: main, command: [cat]}]\n  volumes: [{name: v, csi: {driver: e.example, nodePublishSecretRef: {name: none}}}]\n"
	cases := []struct{ name, text, want string }{
		{"a class", aClaim, `StorageClass "c" does not exist (no StorageClass exists) (it waits)`},
		{"a default class", changed(t, aClaim, "storageClassName: c, ", ""), "no StorageClass is the default one"},
		{"a claim", aPod, `PersistentVolumeClaim "default/data" does not exist (it waits)`},
		{"a source", changed(t, aClaim, "{storageClassName", "{dataSource: {kind: PersistentVolumeClaim, name: x}, storageClassName"), `spec.dataSource: PersistentVolumeClaim "default/x" does not exist`},
		{"a snapshot to restore", changed(t, aClaim, "{storageClassName", "{dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: x}, storageClassName"), `VolumeSnapshot "default/x" does not exist`},
		{"a volume", changed(t, aClaim, "{storageClassName", "{volumeName: x, storageClassName"), `PersistentVolume "x" does not exist`},
		{"attributes", changed(t, aClaim, "{storageClassName", "{volumeAttributesClassName: x, storageClassName"), `VolumeAttributesClass "x" does not exist`},
		{"a claim to snapshot", aSnap, `PersistentVolumeClaim "default/data" does not exist`},
		{"an inline driver", inline, `CSIDriver "e.example" does not exist`},
		{"an inline driver's mode", changed(t, inline, "e.example", "d.example") + "---\n" + aDriver, "does not list Ephemeral"},
		{"a secret", inline, `Secret "default/none" does not exist`},
		{"a status that is given", aClaim + "status: {phase: Bound}\n", `PersistentVolumeClaim "default/data": status`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			result := mustApply(t, newApplier(t), c.text)
			if !strings.Contains(strings.Join(result.Warnings, "\n"), c.want) {
				t.Errorf("got %q, want %s", result.Warnings, c.want)
			}
		})
	}
}

func TestApply_refusesContradictions(t *testing.T) {
	circle := changed(t, aClaim, "{storageClassName", "{dataSource: {kind: PersistentVolumeClaim, name: other}, storageClassName")
	back := changed(t, changed(t, circle, "name: other", "name: data"), "{name: data, labels", "{name: other, labels")
	cases := []struct{ name, first, then, want string }{
		{"a copy of itself", circle, back, "is a copy of itself"},
		{"a filesystem as a device", aClaim, changed(t, aPod, "volumeMounts: [{name: v, mountPath: /v}]", "volumeDevices: [{name: v, devicePath: /v}]"), "use volumeMounts"},
		{"a device as a filesystem", changed(t, aClaim, "{storageClassName", "{volumeMode: Block, storageClassName"), aPod, "use volumeDevices"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, c.first)
			if _, err := h.try(c.then); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

const isDefault = `, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}`

func TestApply_theDefaultClassIsTakenAlsoWhenItComesLater(t *testing.T) {
	h := newApplier(t)
	noClass := changed(t, aClaim, "storageClassName: c, ", "")
	mustApply(t, h, noClass)
	mustApply(t, h, changed(t, aClass, "{name: c}", "{name: c"+isDefault))
	if pvc := stored(t, h, claims, "default/data"); pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName != "c" {
		t.Error("the claim did not get the class")
	}
	if result := mustApply(t, h, noClass); result.Applied[0].Action != api.Unchanged {
		t.Errorf("again it is %s", result.Applied[0].Action)
	}
	mustApply(t, h, changed(t, noClass, "{name: data,", "{name: two,"))
	if pvc := stored(t, h, claims, "default/two"); pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName != "c" {
		t.Error("a new claim did not get the class")
	}
}

func TestApply_aDriverStoredWithoutDefaultsIsTheSame(t *testing.T) {
	h := newApplier(t)
	no := false
	err := h.store.Update(func(tx *store.Tx) error {
		object := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
		object.Name = "d.example"
		return tx.Drivers().Put("d.example", object)
	})
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, h, aDriver)
	if driver := stored(t, h, drivers, "d.example"); driver.Spec.FSGroupPolicy == nil {
		t.Error("the defaults are missing")
	}
}

func TestApply_thePolicyIsAskedAboutNewPods(t *testing.T) {
	h := newApplier(t)
	asked := 0
	h.options.Admit = func(pod *corev1.Pod, namespace *corev1.Namespace, driver func(string) *storagev1.CSIDriver) ([]string, error) {
		asked++
		if namespace.Name != "default" || driver("d.example") == nil || driver("none") != nil {
			t.Errorf("it is asked about %s with the wrong things", pod.Name)
		}
		if pod.Name == "bad" {
			return nil, errors.New("the policy says no")
		}
		return []string{"the policy warns"}, nil
	}
	result := mustApply(t, h, aPod+"---\n"+aDriver)
	if !strings.Contains(strings.Join(result.Warnings, "\n"), "the policy warns") {
		t.Errorf("got %q", result.Warnings)
	}
	mustApply(t, h, changed(t, aPod, "{name: p}", "{name: p, labels: {a: b}}"))
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
	if _, err := h.try(changed(t, aPod, "{name: p}", "{name: bad}")); !errors.Is(err, api.ErrForbidden) || err.Error() != "m.yaml: document 1: the policy says no" {
		t.Errorf("got %v", err)
	}
}

func TestApply_namesFileAndDocumentOfAllThatIsWrong(t *testing.T) {
	_, err := newApplier(t).try(changed(t, aClass, "provisioner: d.example", "") + "---\n" + changed(t, aClaim, "2Gi", "much"))
	if !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "m.yaml: document 1") || !strings.Contains(err.Error(), "m.yaml: document 2") {
		t.Errorf("got %v", err)
	}
}
