package status

import (
	"cmp"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// Ref names an object of the page.
type Ref struct {
	// Kind is pvc, pv, pod, snapshot or driver.
	Kind, Namespace, Name string
}

// The kinds of a Ref.
const (
	Claim    = "pvc"
	Volume   = "pv"
	Pod      = "pod"
	Snapshot = "snapshot"
	Plugin   = "driver"
)

// String is the form that 'holdfast why' takes.
func (r Ref) String() string { return r.Kind + "/" + joined(r.Namespace, r.Name) }

// Level says at a glance how an object is.
type Level string

// The levels.
const (
	Good  Level = "good"  // ready, or in use
	Busy  Level = "busy"  // something waits or runs
	Bad   Level = "bad"   // something failed
	Quiet Level = "quiet" // ended, or not in use
)

// LevelOf returns the level of a claim, volume, snapshot or pod, Quiet for other objects.
// A Row has a higher one while a step of the object runs.
func LevelOf(object any) Level {
	level := Quiet
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		level, _ = claimLevel(object)
	case *corev1.PersistentVolume:
		level, _ = volumeLevel(object)
	case *snapshotv1.VolumeSnapshot:
		level, _ = snapshotLevel(object)
	case *corev1.Pod:
		level = podLevel(object)
	}
	return level
}

// Row is an object in a table.
type Row struct {
	Ref    Ref
	Level  Level
	Status string
	// Running is the step that has not ended, if any.
	Running *journal.StepEntry
	Created time.Time
	Cells   []Cell
	// waits means that the object is not what it is to become.
	waits bool
}

// Cell is a value of a row. Links are pages of objects that the value names.
type Cell struct {
	Text  string
	Links []Ref
}

// Claims returns the table of claims. Cells: size, class, volume, used by, driver.
func (v View) Claims() []Row {
	claims := all[*corev1.PersistentVolumeClaim](v.mirror, kindClaim)
	rows := make([]Row, 0, len(claims))
	users, running := v.users(), v.running(kindClaim)
	for _, pvc := range claims {
		pv, _ := one[*corev1.PersistentVolume](v.mirror, kindVolume, pvc.Spec.VolumeName)
		level, status := claimLevel(pvc)
		row := Row{
			Ref: Ref{Claim, pvc.Namespace, pvc.Name}, Level: level, Status: status, Running: running[keyOf(pvc)],
			Created: pvc.CreationTimestamp.Time,
			Cells: []Cell{
				{Text: sizeOf(pvc)}, {Text: deref(pvc.Spec.StorageClassName)}, linkTo(Ref{Kind: Volume, Name: pvc.Spec.VolumeName}),
				{Links: users[keyOf(pvc)]}, linkTo(Ref{Kind: Plugin, Name: driverOf(pv)}),
			},
		}
		rows = append(rows, row.withStep())
	}
	return rows
}

// withStep raises the level of an object whose step runs or is repeated.
func (r Row) withStep() Row {

	switch {
	case r.Running == nil:
	case r.Running.Status == journal.Retrying:
		r.Level = Bad
	case r.Level == Good || r.Level == Quiet:
		r.Level = Busy
	}
	r.waits = r.Level == Busy || r.Level == Bad
	return r
}

func claimLevel(pvc *corev1.PersistentVolumeClaim) (Level, string) {
	desired, actual := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	switch {
	case pvc.DeletionTimestamp != nil:
		return Busy, "Terminating"
	case pvc.Status.Phase == corev1.ClaimLost:
		return Bad, "Lost"
	case pvc.Status.Phase != corev1.ClaimBound:
		return Busy, "Pending"
	case desired.Cmp(actual) > 0:
		return Busy, "Growing"
	case pvc.Status.ModifyVolumeStatus != nil:
		return Busy, "Modifying"
	}
	return Good, "Bound"
}

func sizeOf(pvc *corev1.PersistentVolumeClaim) string {
	size, ok := pvc.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		size = pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size.String()
}

// users returns the pods that use each claim and have not ended.
func (v View) users() map[string][]Ref {
	users := map[string][]Ref{}
	for _, pod := range all[*corev1.Pod](v.mirror, kindPod) {
		if podEnded(pod) {
			continue
		}
		for _, name := range ClaimsOf(pod) {
			key := joined(pod.Namespace, name)
			users[key] = append(users[key], Ref{Pod, pod.Namespace, pod.Name})
		}
	}
	return users
}

// running returns the last step of each object of a kind that has not ended.
func (v View) running(kind string) map[string]*journal.StepEntry {
	found := map[string]*journal.StepEntry{}
	for _, step := range v.mirror.runningSteps() {
		for _, ref := range step.About {
			if ref.Kind == kind {
				found[ref.Key] = &step
			}
		}
	}
	return found
}

// Volumes returns the table of PersistentVolumes that no claim is bound to. Cells: size,
// class, former claim, driver.
func (v View) Volumes() []Row {
	var rows []Row
	running := v.running(kindVolume)
	for _, pv := range all[*corev1.PersistentVolume](v.mirror, kindVolume) {
		if pv.Status.Phase == corev1.VolumeBound && pv.DeletionTimestamp == nil {
			continue
		}
		level, status := volumeLevel(pv)
		size := pv.Spec.Capacity[corev1.ResourceStorage]
		row := Row{
			Ref: Ref{Kind: Volume, Name: pv.Name}, Level: level, Status: status, Running: running[pv.Name],
			Created: pv.CreationTimestamp.Time,
			Cells: []Cell{
				{Text: size.String()}, {Text: pv.Spec.StorageClassName}, {Text: claimRefOf(pv)},
				linkTo(Ref{Kind: Plugin, Name: driverOf(pv)}),
			},
		}
		rows = append(rows, row.withStep())
	}
	return rows
}

func volumeLevel(pv *corev1.PersistentVolume) (Level, string) {
	switch {
	case pv.DeletionTimestamp != nil:
		return Busy, "Terminating"
	case pv.Status.Phase == corev1.VolumeFailed:
		return Bad, "Failed"
	case pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return Busy, "Released"
	case pv.Status.Phase == corev1.VolumeBound:
		return Good, "Bound"
	}
	return Quiet, string(cmp.Or(pv.Status.Phase, corev1.VolumePending))
}

func claimRefOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return joined(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

func driverOf(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.Driver
}

// Pods returns the table of pods. Cells: ready, restarts, claims, node.
func (v View) Pods() []Row {
	pods := all[*corev1.Pod](v.mirror, kindPod)
	rows := make([]Row, 0, len(pods))
	running := v.running(kindPod)
	for _, pod := range pods {
		var claims []Ref
		for _, name := range ClaimsOf(pod) {
			claims = append(claims, Ref{Claim, pod.Namespace, name})
		}
		row := Row{
			Ref: Ref{Pod, pod.Namespace, pod.Name}, Level: podLevel(pod), Status: PodStatus(pod), Running: running[keyOf(pod)],
			Created: pod.CreationTimestamp.Time,
			Cells: []Cell{
				{Text: PodReady(pod)}, {Text: number(int64(Restarts(pod)))}, {Links: claims}, {Text: pod.Spec.NodeName},
			},
		}
		row = row.withStep()
		row.waits = row.waits && (!podEnded(pod) || pod.DeletionTimestamp != nil)
		rows = append(rows, row)
	}
	return rows
}

// Snapshots returns the table of snapshots. Cells: size, source, class, content's driver.
func (v View) Snapshots() []Row {
	snapshots := all[*snapshotv1.VolumeSnapshot](v.mirror, kindSnapshot)
	rows := make([]Row, 0, len(snapshots))
	running := v.running(kindSnapshot)
	for _, snapshot := range snapshots {
		level, status := snapshotLevel(snapshot)
		content := v.contentOf(snapshot)
		var driver string
		if content != nil {
			driver = content.Spec.Driver
		}
		row := Row{
			Ref: Ref{Snapshot, snapshot.Namespace, snapshot.Name}, Level: level, Status: status,
			Running: running[keyOf(snapshot)], Created: snapshot.CreationTimestamp.Time,
			Cells: []Cell{
				{Text: restoreSize(snapshot)},
				linkTo(Ref{Claim, snapshot.Namespace, deref(snapshot.Spec.Source.PersistentVolumeClaimName)}),
				{Text: deref(snapshot.Spec.VolumeSnapshotClassName)}, linkTo(Ref{Kind: Plugin, Name: driver}),
			},
		}
		rows = append(rows, row.withStep())
	}
	return rows
}

func (v View) contentOf(snapshot *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotContent {
	if snapshot.Status == nil {
		return nil
	}
	content, _ := one[*snapshotv1.VolumeSnapshotContent](v.mirror, kindContent, deref(snapshot.Status.BoundVolumeSnapshotContentName))
	return content
}

func snapshotLevel(snapshot *snapshotv1.VolumeSnapshot) (Level, string) {
	switch status := snapshot.Status; {
	case snapshot.DeletionTimestamp != nil:
		return Busy, "Terminating"
	case status != nil && status.Error != nil:
		return Bad, "Failed"
	case status == nil || status.ReadyToUse == nil || !*status.ReadyToUse:
		return Busy, "Not ready"
	}
	return Good, "Ready"
}

func restoreSize(snapshot *snapshotv1.VolumeSnapshot) string {
	if snapshot.Status == nil || snapshot.Status.RestoreSize == nil {
		return ""
	}
	return snapshot.Status.RestoreSize.String()
}

// linkTo is a cell with the link to an object; an object without a name is none.
func linkTo(ref Ref) Cell {
	if ref.Name == "" {
		return Cell{}
	}
	return Cell{Links: []Ref{ref}}
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
