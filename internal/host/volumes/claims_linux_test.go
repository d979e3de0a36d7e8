package volumes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// daemon is a world whose controllers run, as in the host's daemon.
type daemon struct {
	*world
	set  *reconcile.Set
	stop func()

	observe func(Event) // set before start

	noticesMu sync.Mutex
	notices   []journal.Notice
}

func newDaemon(t *testing.T, change ...func(*csidriver.Driver)) *daemon {
	t.Helper()
	d := &daemon{world: newWorld(t, change...)}
	d.start("")
	t.Cleanup(func() { d.stop() })
	return d
}

// start runs the controllers, as a new process would, with failpoints.
func (d *daemon) start(terms string) {
	d.t.Helper()
	points, err := failpoint.Parse(terms)
	if err != nil {
		d.t.Fatal(err)
	}
	d.manager = New(Options{
		Store: d.store, Drivers: d.registry, Paths: claim.Paths{Root: d.root}, BootID: "boot-1", Failpoints: points,
		Logger: slog.New(slog.DiscardHandler), Observe: d.observe,
		Record: func(notice journal.Notice) {
			d.noticesMu.Lock()
			defer d.noticesMu.Unlock()
			d.notices = append(d.notices, notice)
		},
	})
	d.set = reconcile.NewSet(d.store, d.manager.Controllers()...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.set.Run(ctx) }()
	d.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			d.t.Error(err)
		}
		d.stop = func() {}
	}
}

// until waits for a state of the store.
func (d *daemon) until(what string, reached func(*store.Tx) bool) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var done bool
		if err := d.store.View(func(tx *store.Tx) error { done = reached(tx); return nil }); err != nil {
			d.t.Fatal(err)
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("not reached: %s; events: %v", what, d.events())
		}
	}
}

// events lists the recorded events, as "reason of key: message".
func (d *daemon) events() (all []string) {
	d.noticesMu.Lock()
	defer d.noticesMu.Unlock()
	for _, notice := range d.notices {
		all = append(all, fmt.Sprintf("%s of %s: %s", notice.Reason, notice.About.Key, notice.Message))
	}
	return all
}

// awaitEvent waits until an event was recorded.
func (d *daemon) awaitEvent(reason, text string) {
	d.t.Helper()
	d.until(fmt.Sprintf("event %s, with %q", reason, text), func(*store.Tx) bool {
		for _, line := range d.events() {
			if strings.HasPrefix(line, reason+" of ") && strings.Contains(line, text) {
				return true
			}
		}
		return false
	})
}

// get reads an object; nil if it does not exist.
func get[T any](t *testing.T, table store.Table[T], key string) *T {
	t.Helper()
	object, err := table.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (d *daemon) isBound(key string) *corev1.PersistentVolume {
	d.t.Helper()
	var pv *corev1.PersistentVolume
	d.until(key+" is bound", func(tx *store.Tx) bool {
		pvc := get(d.t, tx.Claims(), key)
		if pvc == nil || pvc.Status.Phase != corev1.ClaimBound {
			return false
		}
		pv = get(d.t, tx.Volumes(), pvc.Spec.VolumeName)
		return pv != nil && pv.Status.Phase == corev1.VolumeBound
	})
	return pv
}

// erase deletes a claim, a volume or a snapshot as a user does.
func (d *daemon) erase(resource, key string) {
	d.t.Helper()
	kind, _ := store.KindOf(resource)
	d.put(func(tx *store.Tx) error {
		object, err := tx.Objects(kind).Get(key)
		if err != nil || object == nil || object.GetDeletionTimestamp() != nil {
			return err
		}
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
		return tx.Objects(kind).Put(key, object)
	})
}

func (d *daemon) isGone(resource, key string) {
	d.t.Helper()
	kind, _ := store.KindOf(resource)
	d.until(resource+" "+key+" is gone", func(tx *store.Tx) bool {
		object, err := tx.Objects(kind).Get(key)
		if err != nil {
			d.t.Fatal(err)
		}
		return object == nil
	})
}

func (d *daemon) hasVolumes(want int) {
	d.t.Helper()
	d.until(fmt.Sprintf("the driver has %d volumes", want), func(*store.Tx) bool {
		volumes, _ := d.driver.Left()
		return volumes == want
	})
}

func protected(p *corev1.PersistentVolumeClaim) { p.Finalizers = []string{claimProtection} }

func TestClaims_getAVolumeThatIsDeletedWithThem(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	pv := d.isBound(key)
	if pv.Name != "pvc-uid-data" || pv.Spec.CSI.VolumeHandle != "id-pvc-uid-data" {
		t.Errorf("the volume is %+v", pv)
	}
	d.awaitEvent("ProvisioningSucceeded", "pvc-uid-data")
	d.erase(claimResource, key)
	d.isGone(claimResource, key)
	d.isGone(volumeResource, pv.Name)
	d.hasVolumes(0)
	d.calls("CreateVolume", "DeleteVolume")
}

func TestClaims_waitForTheirFirstConsumer(t *testing.T) {
	d := newDaemon(t)
	d.put(func(tx *store.Tx) error {
		waits, later := class(), storagev1.VolumeBindingWaitForFirstConsumer
		waits.VolumeBindingMode = &later
		return tx.Classes().Put("fast", waits)
	})
	key := d.claim("data", protected)
	d.awaitEvent("WaitForFirstConsumer", "waiting for first consumer")
	d.calls()
	d.put(func(tx *store.Tx) error { return tx.Pods().Put("ns/a", pod("a", "data")) })
	d.isBound(key)
}

func TestClaims_waitForAClassAndADriver(t *testing.T) {
	d := newDaemon(t)
	d.put(func(tx *store.Tx) error { return tx.Classes().Delete("fast") })
	key := d.claim("data", protected)
	d.awaitEvent("ProvisioningFailed", `storageclass.storage.k8s.io "fast" not found`)
	d.registry.set("d.example", nil)
	d.put(func(tx *store.Tx) error { return tx.Classes().Put("fast", class()) })
	d.awaitEvent("ExternalProvisioning", "'d.example'")
	d.registry.set("d.example", d.client)
	d.set.Retry()
	d.isBound(key)
}

func TestClaims_getADefaultClassThatIsCreatedLater(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = nil })
	d.awaitEvent("FailedBinding", "no storage class is set")
	d.put(func(tx *store.Tx) error {
		first := class()
		first.Annotations = map[string]string{defaultClassAnnotation: "true"}
		return tx.Classes().Put("fast", first)
	})
	if pv := d.isBound(key); pv.Spec.StorageClassName != "fast" {
		t.Errorf("the class is %q", pv.Spec.StorageClassName)
	}
}

func TestClaims_inUseStayUntilTheLastPodIsGone(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	user := pod("a", "data")
	d.put(func(tx *store.Tx) error { return tx.Pods().Put("ns/a", user) })
	d.erase(claimResource, key)
	d.awaitEvent("DeletePending", "it is in use by pod ns/a")
	user.Status.Phase = corev1.PodSucceeded
	d.put(func(tx *store.Tx) error { return tx.Pods().Put("ns/a", user) })
	d.isGone(claimResource, key)
	d.hasVolumes(0)
}

func TestClaims_aCopyKeepsItsSource(t *testing.T) {
	d := newDaemon(t)
	source := d.claim("source", protected)
	d.isBound(source)
	release := make(chan struct{})
	d.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateVolume" {
			<-release
		}
		return nil
	}
	key := d.claim("copy", protected, func(p *corev1.PersistentVolumeClaim) {
		p.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
	})
	d.until("the copy is begun", func(tx *store.Tx) bool { return get(t, tx.Provisionings(), "uid-copy") != nil })
	d.erase(claimResource, source)
	d.awaitEvent("DeletePending", `it is being copied for PersistentVolumeClaim "ns/copy"`)
	close(release)
	d.isBound(key)
	d.isGone(claimResource, source)
	d.hasVolumes(1)
}

func TestClaims_passSecretsToTheDriverOnly(t *testing.T) {
	d := newDaemon(t)
	d.put(func(tx *store.Tx) error {
		secret := class()
		secret.Parameters = map[string]string{
			"csi.storage.k8s.io/secret-name": "s-${pvc.name}", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
		}
		return tx.Classes().Put("fast", secret)
	})
	var seen sync.Map
	d.driver.Before = func(_ context.Context, rpc string, request any) error {
		if asked, ok := request.(interface{ GetSecrets() map[string]string }); ok {
			seen.Store(rpc, asked.GetSecrets()["key"])
		}
		return nil
	}
	key := d.claim("data", protected)
	d.awaitEvent("ProvisioningFailed", `the secret for CreateVolume is missing: Secret "ns/s-data" does not exist`)
	d.put(func(tx *store.Tx) error {
		return tx.Secrets().Put("ns/s-data", &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s-data"}, Data: map[string][]byte{"key": []byte("hush")},
		})
	})
	pv := d.isBound(key)
	if pv.Annotations[claim.DeletionSecretNameAnnotation] != "s-data" || pv.Spec.CSI.NodePublishSecretRef.Name != "s-data" {
		t.Errorf("the volume names %v and %+v", pv.Annotations, pv.Spec.CSI)
	}
	d.put(func(tx *store.Tx) error { return tx.Secrets().Delete("ns/s-data") })
	d.erase(claimResource, key)
	d.awaitEvent("VolumeFailedDelete", "the secret for DeleteVolume is missing")
	d.put(func(tx *store.Tx) error {
		return tx.Secrets().Put("ns/s-data", &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s-data"}, Data: map[string][]byte{"key": []byte("hush")},
		})
	})
	d.hasVolumes(0)
	for _, rpc := range []string{"CreateVolume", "DeleteVolume"} {
		if value, _ := seen.Load(rpc); value != "hush" {
			t.Errorf("%s got %v", rpc, value)
		}
	}
	if events := fmt.Sprint(d.events()); strings.Contains(events, "hush") {
		t.Error("an event has a secret")
	}
}

// volumeOf is a PersistentVolume that the administrator created.
func volumeOf(name, size, class string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: sizeList(size), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: "h-" + name}},
		},
	}
	for _, c := range change {
		c(pv)
	}
	return pv
}

func (d *daemon) volume(pv *corev1.PersistentVolume) {
	d.t.Helper()
	d.put(func(tx *store.Tx) error { return tx.Volumes().Put(pv.Name, pv) })
}

func TestClaims_bindToVolumesThatExist(t *testing.T) {
	d := newDaemon(t)
	none := func(p *corev1.PersistentVolumeClaim) { empty := ""; p.Spec.StorageClassName = &empty }
	key := d.claim("data", none)
	d.awaitEvent("FailedBinding", "no persistent volumes available")
	d.volume(volumeOf("small", "100Mi", ""))
	d.volume(volumeOf("right", "1Gi", ""))
	if pv := d.isBound(key); pv.Name != "right" {
		t.Errorf("it got %s", pv.Name)
	}
	named := d.claim("named", none, func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "later" })
	d.awaitEvent("FailedBinding", `PersistentVolume "later" does not exist`)
	d.volume(volumeOf("later", "1Mi", ""))
	d.awaitEvent("VolumeMismatch", "less than the 1Gi asked for")
	d.volume(volumeOf("later", "5Gi", ""))
	if pv := d.isBound(named); pv.Name != "later" {
		t.Errorf("it got %s", pv.Name)
	}
	d.erase(claimResource, key)
	d.isGone(claimResource, key)
	d.until("right is released", func(tx *store.Tx) bool {
		return get(t, tx.Volumes(), "right").Status.Phase == corev1.VolumeReleased
	})
	d.calls()
	d.erase(volumeResource, "later")
	d.awaitEvent("DeletePending", `it is deleted when PersistentVolumeClaim "ns/named" is`)
	d.erase(claimResource, named)
	d.isGone(volumeResource, "later")
	d.calls() // Retain: the driver's volume stays
}

func TestClaims_areLostWithTheirVolume(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	pv := d.isBound(key)
	d.put(func(tx *store.Tx) error { return tx.Volumes().Delete(pv.Name) })
	d.awaitEvent("ClaimLost", "Data on the volume is lost")
	d.volume(pv)
	d.isBound(key)
}

func TestVolumes_ofAnotherClusterAreNotReclaimed(t *testing.T) {
	d := newDaemon(t)
	d.driver.AddVolume("h-old", 1<<30)
	d.volume(volumeOf("old", "1Gi", "fast", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "of another cluster"}
	}))
	d.until("it is available", func(tx *store.Tx) bool {
		return get(t, tx.Volumes(), "old").Status.Phase == corev1.VolumeAvailable
	})
	d.isBound(d.claim("data", protected))
	d.hasVolumes(2)
}

func TestVolumes_aHandleThatAnotherHasIsRefusedAndNotDeleted(t *testing.T) {
	d := newDaemon(t)
	first := d.isBound(d.claim("first", protected))
	d.driver.Creation.Answer = nil
	d.claim("second", protected)
	d.isBound("ns/second")
	d.volume(volumeOf("x", "1Gi", "", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "id-pvc-uid-third" }))
	d.claim("third", protected)
	d.awaitEvent("ProvisioningFailed", `"id-pvc-uid-third", which is that of PersistentVolume "x"`)
	// Nothing remains to be done for a claim that is deleted: x has the volume.
	d.erase("persistentvolumeclaims", "ns/third")
	d.isGone("persistentvolumeclaims", "ns/third")
	d.until("the intent is gone", func(tx *store.Tx) bool {
		intents, err := tx.Provisionings().All()
		return err == nil && len(intents) == 0
	})
	if d.driver.Count("DeleteVolume") != 0 || first == nil {
		t.Error("an administrator's volume was deleted")
	}
	d.hasVolumes(3)
}

func TestEphemeral_goesWithItsPodAndIsNeverAdopted(t *testing.T) {
	d := newDaemon(t)
	fast := "fast"
	owner := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "pod-a"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "b", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &fast, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: sizeList("1Gi")},
				},
			}},
		}}}},
	}
	d.put(func(tx *store.Tx) error { return tx.Pods().Put("ns/a", owner) })
	for range 2 { // the second time changes nothing
		if err := d.manager.EnsureEphemeral(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
	d.isBound("ns/a-b")
	other := owner.DeepCopy()
	other.UID = "another of that name"
	if err := d.manager.EnsureEphemeral(t.Context(), other); err == nil || !strings.Contains(err.Error(), "was not created for pod") {
		t.Errorf("got %v", err)
	}
	d.put(func(tx *store.Tx) error { return tx.Pods().Delete("ns/a") })
	d.isGone(claimResource, "ns/a-b")
	d.hasVolumes(0)
}

// The source and its content stay while a snapshot needs them.
func TestSnapshots_areCreatedRestoredAndDeleted(t *testing.T) {
	d := newDaemon(t, func(driver *csidriver.Driver) { driver.Snapshots.UnreadyAnswers = 1 })
	source := d.claim("data", protected)
	d.isBound(source)
	d.put(func(tx *store.Tx) error {
		return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
			Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	})
	d.snapshot("s", "data")
	d.until("the snapshot exists and is not ready", func(tx *store.Tx) bool {
		status := get(t, tx.Snapshots(), "ns/s").Status
		return status != nil && status.CreationTime != nil && !ok(status.ReadyToUse)
	})
	d.erase(claimResource, source)
	d.awaitEvent("DeletePending", "a snapshot is being taken of it: VolumeSnapshot ns/s")
	copied := d.claim("copy", protected, func(p *corev1.PersistentVolumeClaim) {
		group := snapshotv1.GroupName
		p.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "s"}
	})
	d.awaitEvent("ProvisioningFailed", "is not ready yet")
	d.awaitEvent("SnapshotReady", "ns/s")
	d.isBound(copied)
	d.isGone(claimResource, source)
	d.erase(snapshotResource, "ns/s")
	d.isGone(snapshotResource, "ns/s")
	d.isGone(contentResource, "snapcontent-uid-s")
	if left := d.driver.SnapshotsLeft(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if content := d.driver.Request("pvc-uid-copy").GetVolumeContentSource(); content.GetSnapshot().GetSnapshotId() != "id-snapshot-uid-s" {
		t.Errorf("it was made of %v", content)
	}
}

func (d *daemon) snapshot(name, claimName string) {
	d.t.Helper()
	d.put(func(tx *store.Tx) error {
		return tx.Snapshots().Put("ns/"+name, &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claimName}},
		})
	})
}

func sizeList(size string) corev1.ResourceList {
	p := &corev1.PersistentVolumeClaim{}
	p.Spec.Resources.Requests = corev1.ResourceList{}
	grow(size)(p)
	return p.Spec.Resources.Requests
}
