package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// populate creates the classes, nodes and secrets.
func (w *World) populate() {
	w.retained = newRetained()
	for _, name := range []string{namespace, system, intents} {
		w.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	required := w.shape.attach
	w.put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &required}})
	for _, name := range w.nodes {
		w.put(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{csidriver.TopologyKey: name}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		w.putNode(name)
	}
	w.putSecret()
	w.putClass("a")
	w.putSnapshotClass("a")
	for _, name := range []string{"gold", "silver"} {
		w.put(&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driverName, Parameters: map[string]string{"level": name}})
	}
}

func (w *World) putNode(name string) {
	driver := storagev1.CSINodeDriver{Name: driverName, NodeID: "id-" + name}
	if w.shape.nodes {
		driver.NodeID, driver.TopologyKeys = name, []string{csidriver.TopologyKey}
	}
	w.put(&storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: w.uid("csinode")},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{driver}},
	})
}

func (w *World) putSecret() {
	w.put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keys"}, Data: map[string][]byte{"password": []byte(marker + "password")},
	})
}

// putClass creates the storage class, with a tier among its parameters.
func (w *World) putClass(tier string) {
	mode, expand := storagev1.VolumeBindingImmediate, true
	if !w.shape.immediate {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: w.uid("class")}, Provisioner: driverName, AllowVolumeExpansion: &expand,
		VolumeBindingMode: &mode, Parameters: map[string]string{"tier": tier},
	}
	if w.shape.secret {
		for _, call := range []string{"provisioner", "controller-publish", "controller-expand"} {
			class.Parameters["csi.storage.k8s.io/"+call+"-secret-name"] = "keys"
			class.Parameters["csi.storage.k8s.io/"+call+"-secret-namespace"] = namespace
		}
	}
	w.put(class)
}

// putSnapshotClass creates the class of snapshots, with a tier among its parameters.
func (w *World) putSnapshotClass(tier string) {
	w.put(&snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: snapshotClass, UID: w.uid("snapshotclass")}, Driver: driverName,
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, Parameters: map[string]string{"tier": tier},
	})
}

func (w *World) createClaim(change func(*corev1.PersistentVolumeClaim)) {
	class := "fast"
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: w.meta("claim"),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	pvc.Finalizers = []string{claimProtection}
	change(pvc)
	w.put(pvc)
	if !w.shape.immediate || w.lab.OneIn(2) {
		w.createPod(pvc)
	}
}

func (w *World) createPod(pvc *corev1.PersistentVolumeClaim) {
	pod := &corev1.Pod{ObjectMeta: w.meta("pod")}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc.Name},
	}}}
	w.put(pod)
}

// actions are what can happen now besides steps of processes.
func (w *World) actions() []lab.Action {
	found := append(append(w.userActions(), w.adminActions()...), w.faultActions()...)
	for _, favourite := range w.shape.favourites {
		found[favourite%len(found)].Weight = favouriteWeight
	}
	return found
}

// pick returns a random object of a resource that a condition selects; nil for none. Half of the
// time it is one that the last step was about, if there is one: what breaks a process is a change of
// what it works on.
func pick[T object](w *World, resource string, ok func(T) bool) (T, bool) {
	var found []T
	for _, o := range all[T](w.mirror, resource) {
		if ok == nil || ok(o) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		var none T
		return none, false
	}
	last := w.lastSubject()
	if near := slices.DeleteFunc(slices.Clone(found), func(o T) bool { return !concerns(last, o) }); len(near) > 0 && w.lab.OneIn(2) {
		found = near
	}
	return lab.Pick(w.lab, found...), true
}

// lastSubject is what the last step was about: the name of an object, or an ID of the driver.
func (w *World) lastSubject() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.subject
}

func (w *World) setSubject(subject string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subject = subject
}

// concerns reports whether a step was about an object. The names of volumes, contents and their IDs
// have the UID of their claim or snapshot.
func concerns(subject string, o object) bool {
	switch o := o.(type) {
	case *storagev1.VolumeAttachment:
		return strings.Contains(subject, o.Name) || strings.Contains(subject, volumeOf(o))
	case *corev1.PersistentVolume, *snapshotv1.VolumeSnapshotContent:
		return strings.Contains(subject, o.GetName())
	default:
		return strings.Contains(subject, string(o.GetUID())) || strings.HasSuffix(subject, "/"+o.GetName())
	}
}

func (w *World) userActions() []lab.Action { //nolint:funlen,gocognit // a table
	return []lab.Action{
		{Name: "a user creates a claim", Weight: 6, Do: func() { w.createClaim(func(*corev1.PersistentVolumeClaim) {}) }},
		{Name: "a user deletes a claim", Weight: 5, Do: func() {
			if pvc, ok := pick[*corev1.PersistentVolumeClaim](w, claims, nil); ok {
				w.lab.Note("claim %s", pvc.Name)
				w.removePodsOf(pvc)
				w.remove(pvc)
			}
		}},
		{Name: "a user creates a pod", Weight: 2, Do: func() {
			if pvc, ok := pick[*corev1.PersistentVolumeClaim](w, claims, nil); ok {
				w.createPod(pvc)
			}
		}},
		{Name: "a user deletes a pod", Weight: 3, Do: func() {
			if pod, ok := pick[*corev1.Pod](w, pods, nil); ok {
				w.lab.Note("pod %s of claim %s", pod.Name, claimOf(pod))
				w.remove(pod)
			}
		}},
		{Name: "a user clones a claim", Weight: 1, Do: func() {
			if source, ok := pick(w, claims, bound); ok {
				w.createClaim(func(pvc *corev1.PersistentVolumeClaim) {
					pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source.Name}
				})
			}
		}},
		{Name: "a user expands a claim", Weight: 2, Do: func() {
			if pvc, ok := pick(w, claims, bound); ok {
				w.change(pvc, func(o object) {
					size := asClaim(o).Spec.Resources.Requests[corev1.ResourceStorage]
					size.Add(resource.MustParse("1Gi"))
					asClaim(o).Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
				})
			}
		}},
		{Name: "a user chooses another attributes class", Weight: 1, Do: func() {
			if pvc, ok := pick(w, claims, bound); ok && w.shape.modify {
				class := lab.Pick(w.lab, "gold", "silver")
				w.change(pvc, func(o object) { asClaim(o).Spec.VolumeAttributesClassName = &class })
			}
		}},
		{Name: "a user takes a snapshot", Weight: 3, Do: func() {
			if pvc, ok := pick(w, claims, bound); ok {
				class, source := snapshotClass, pvc.Name
				snapshot := &snapshotv1.VolumeSnapshot{
					ObjectMeta: w.meta("snapshot"),
					Spec: snapshotv1.VolumeSnapshotSpec{
						VolumeSnapshotClassName: &class, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &source},
					},
				}
				snapshot.Finalizers = []string{snapshotFinalizer}
				w.put(snapshot)
			}
		}},
		{Name: "a user deletes a snapshot", Weight: 2, Do: func() {
			if snapshot, ok := pick[*snapshotv1.VolumeSnapshot](w, snapshots, nil); ok {
				w.remove(snapshot)
			}
		}},
		{Name: "a user restores a snapshot", Weight: 1, Do: func() {
			if snapshot, ok := pick[*snapshotv1.VolumeSnapshot](w, snapshots, nil); ok {
				group := claim.SnapshotGroup
				w.createClaim(func(pvc *corev1.PersistentVolumeClaim) {
					pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: snapshot.Name}
				})
			}
		}},
		{Name: "a user creates a claim again under its name", Weight: 1, Do: func() {
			if old, ok := pick(w, claims, func(pvc *corev1.PersistentVolumeClaim) bool { return pvc.Spec.DataSource == nil }); ok {
				w.lab.Note("claim %s", old.Name)
				w.drop(old)
				w.createClaim(func(pvc *corev1.PersistentVolumeClaim) { pvc.Name = old.Name })
			}
		}},
		{Name: "a user edits the annotations of a claim", Weight: 1, Do: func() {
			if pvc, ok := pick[*corev1.PersistentVolumeClaim](w, claims, nil); ok {
				w.change(pvc, annotate("example.com/note", fmt.Sprint(w.made)))
			}
		}},
	}
}

func bound(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Status.Phase == corev1.ClaimBound && pvc.DeletionTimestamp == nil
}

func (w *World) removePodsOf(pvc *corev1.PersistentVolumeClaim) {
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		if claimOf(pod) == pvc.Name {
			w.remove(pod)
		}
	}
}

// pickWatched returns a resource whose watch can fall behind.
func (w *World) pickWatched() string {
	return lab.Pick(w.lab, claims, volumes, attachments, snapshots, contents, classes, configMaps)
}

// faultActions are what happens to machines and processes.
func (w *World) faultActions() []lab.Action { //nolint:funlen // a table
	replica := func() *replica { return lab.Pick(w.lab, w.replicas...) }
	return []lab.Action{
		{Name: "a process crashes", Weight: 3, Do: func() {
			r := replica()
			w.lab.Note("%s", r.name)
			r.crash()
		}},
		{Name: "a process is stopped", Do: func() {
			r := replica()
			w.lab.Note("%s", r.name)
			r.now().stop()
		}},
		{Name: "a process pauses or continues", Weight: 2, Do: func() {
			p := replica().now()
			w.lab.Note("%s", p.Name())
			p.paused.Store(true)
			p.Pause(!p.Paused())
		}},
		{Name: "the clock of a process jumps", Do: func() {
			p := replica().now()
			p.clock.Store(int64(lab.Pick(w.lab, 0, time.Hour, -time.Hour)))
		}},
		{Name: "the API server compacts its history", Do: w.server.Compact},
		{Name: "the API server restarts", Do: func() {
			w.server.BreakWatches("*")
			if w.lab.OneIn(2) {
				w.server.Compact()
			}
		}},
		{Name: "a watch falls behind or catches up", Weight: 3, Do: func() {
			resource := w.pickWatched()
			p := replica().now()
			w.lab.Note("%s of %s", resource, p.Name())
			p.sight.toggleBehind(resource)
		}},
		{Name: "a watch of each standby falls behind or catches up", Weight: 2, Do: func() {
			resource := w.pickWatched()
			w.lab.Note("%s", resource)
			for _, r := range w.replicas {
				if p := r.now(); p.Name() != w.holder {
					p.sight.toggleBehind(resource)
				}
			}
		}},
		{Name: "the leader crashes, is cut off from the Lease or connected again", Weight: 2, Do: func() {
			for _, r := range w.replicas {
				switch p := r.now(); {
				case p.Name() != w.holder:
				case w.lab.OneIn(2):
					r.crash()
				default:
					p.sight.toggleCut(true)
				}
			}
		}},
		{Name: "a process is cut off or connected again", Weight: 2, Do: func() {
			p := replica().now()
			w.lab.Note("%s", p.Name())
			p.sight.toggleCut(w.lab.OneIn(2))
		}},
		{Name: "the API server's clock jumps", Do: func() {
			w.server.Skew(lab.Pick(w.lab, 0, time.Minute, -time.Minute, time.Hour, -time.Hour))
		}},
		{Name: "the storage is full or has room", Do: func() { w.storage.full = !w.storage.full }},
		{Name: "the storage is read-only or not", Do: func() { w.storage.readOnly = !w.storage.readOnly }},
	}
}
