package kube

import (
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// users are what users and administrators have done.
type users struct {
	mu sync.Mutex
	// kept is the step in which the policy of a PersistentVolume became Retain.
	kept map[string]int
	// read is the last step in which a process read a PersistentVolume from the API server.
	read map[string]int
}

// reads notes that a process reads a PersistentVolume.
func (u *users) reads(p *process, volume string, step int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read[p.Name()+" "+volume] = step
}

// known reports whether a process must know that a PersistentVolume is retained: a user may
// change the policy after the last read before the call.
func (u *users) known(p *process, volume string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	read, ok := u.read[p.Name()+" "+volume]
	return !ok || u.kept[volume] < read
}

// wasKept reports whether a PersistentVolume has been retained.
func (u *users) wasKept(volume string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.kept[volume]
	return ok
}

// populate creates the classes, nodes and secrets.
func (w *World) populate() {
	w.users.kept, w.users.read = map[string]int{}, map[string]int{}
	for _, name := range []string{namespace, system, intents} {
		w.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	required := w.shape.attach
	w.put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &required}})
	for _, name := range w.nodes {
		w.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.putNode(name)
	}
	w.putSecret()
	w.putClass("a")
	w.put(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: snapshotClass}, Driver: driverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete})
	for _, name := range []string{"gold", "silver"} {
		w.put(&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driverName, Parameters: map[string]string{"level": name}})
	}
}

func (w *World) putNode(name string) {
	w.put(&storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: w.uid("csinode")},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "id-" + name}}},
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
	return append(append(w.userActions(), w.adminActions()...), w.faultActions()...)
}

// pick returns a random object of a resource that a condition selects; nil for none.
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
	return lab.Pick(w.lab, found...), true
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
		{Name: "a user takes a snapshot", Weight: 2, Do: func() {
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
		{Name: "a user deletes a snapshot", Weight: 1, Do: func() {
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

func (w *World) adminActions() []lab.Action { //nolint:funlen // a table
	return []lab.Action{
		{Name: "an administrator creates the class again", Do: func() { w.putClass(lab.Pick(w.lab, "a", "b", "c")) }},
		{Name: "an administrator retains a volume", Do: func() {
			if pv, ok := pick[*corev1.PersistentVolume](w, volumes, nil); ok {
				w.lab.Note("volume %s", pv.Name)
				w.users.mu.Lock()
				w.users.kept[pv.Name] = w.lab.Steps()
				w.users.mu.Unlock()
				w.change(pv, func(o object) {
					asVolume(o).Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
				})
			}
		}},
		{Name: "an administrator gives up a volume", Do: func() {
			if pv, ok := pick(w, volumes, func(pv *corev1.PersistentVolume) bool { return pv.DeletionTimestamp == nil }); ok {
				w.change(pv, func(o object) {
					asVolume(o).Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
				})
			}
		}},
		{Name: "an administrator deletes a volume", Do: func() {
			if pv, ok := pick[*corev1.PersistentVolume](w, volumes, nil); ok {
				w.lab.Note("volume %s", pv.Name)
				w.remove(pv)
			}
		}},
		{Name: "an administrator removes a volume attachment by force", Do: func() {
			if va, ok := pick[*storagev1.VolumeAttachment](w, attachments, nil); ok {
				if pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", volumeOf(va)); ok {
					where := pv.Spec.CSI.VolumeHandle + " id-" + va.Spec.NodeName
					w.storage.forced[where], w.storage.racing[where] = true, true
				}
				w.lab.Note("attachment of %s to %s", volumeOf(va), va.Spec.NodeName)
				w.drop(va)
			}
		}},
		{Name: "a node is lost or comes back", Do: func() {
			name := lab.Pick(w.lab, w.nodes...)
			if node, ok := get[*storagev1.CSINode](w.mirror, csiNodes, "", name); ok {
				w.drop(node)
				return
			}
			w.putNode(name)
		}},
		{Name: "the secret is deleted or created", Do: func() {
			if secret, ok := get[*corev1.Secret](w.mirror, secrets, namespace, "keys"); ok {
				w.drop(secret)
				return
			}
			w.putSecret()
		}},
		{Name: "an administrator deletes the lease", Do: func() {
			for _, held := range all[*coordinationv1.Lease](w.mirror, leases) {
				w.remove(held)
			}
		}},
		{Name: "the namespace is deleted", Do: func() {
			if w.lab.OneIn(4) {
				w.deleteNamespace()
			}
		}},
	}
}

func (w *World) deleteNamespace() {
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		w.remove(pod)
	}
	for _, snapshot := range all[*snapshotv1.VolumeSnapshot](w.mirror, snapshots) {
		w.remove(snapshot)
	}
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		w.remove(pvc)
	}
}

// faultActions are what happens to machines and processes.
func (w *World) faultActions() []lab.Action {
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
		{Name: "the API server restarts", Do: func() { w.server.BreakWatches("*") }},
		{Name: "the API server's clock jumps", Do: func() {
			w.server.Skew(lab.Pick(w.lab, 0, time.Minute, -time.Minute, time.Hour, -time.Hour))
		}},
		{Name: "the storage is full or has room", Do: func() { w.storage.full = !w.storage.full }},
		{Name: "the storage is read-only or not", Do: func() { w.storage.readOnly = !w.storage.readOnly }},
	}
}
