package status

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// Page collects everything about an object. Exists is false if there is none and
// nothing is known of an earlier one.
func (v View) Page(ctx context.Context, ref Ref) ObjectPage {
	page := ObjectPage{Ref: ref, FromEvents: !v.source.HasJournal()}
	kind, key := kindOf(ref.Kind), joined(ref.Namespace, ref.Name)
	var uid string
	page.Row, page.Facts, uid = v.describe(ref)
	page.Exists = page.Row.Ref.Name != ""
	page.Events = v.eventsOf(kind, key, uid)
	steps := v.mirror.stepsOf(kind, key, uid)
	if page.FromEvents {
		steps = v.clusterSteps(ref)
	}
	page.Steps = NewWaterfall(steps, time.Now())
	if !page.Exists {
		return page
	}
	report, err := v.Why(ctx, ref)
	page.Report = report
	if err != nil {
		page.WhyError = err.Error()
	}
	return page
}

func kindOf(word string) string {
	return map[string]string{Claim: kindClaim, Volume: kindVolume, Pod: kindPod, Snapshot: kindSnapshot}[word]
}

// describe returns an object's row, its facts and its UID. The row is empty if the
// object does not exist.
func (v View) describe(ref Ref) (row Row, facts []Fact, uid string) {
	key := joined(ref.Namespace, ref.Name)
	switch ref.Kind {
	case Claim:
		if pvc, ok := one[*corev1.PersistentVolumeClaim](v.mirror, kindClaim, key); ok {
			return find(v.Claims(), ref), v.claimFacts(pvc), string(pvc.UID)
		}
	case Volume:
		if pv, ok := one[*corev1.PersistentVolume](v.mirror, kindVolume, key); ok {
			level, status := volumeLevel(pv)
			row := Row{Ref: ref, Level: level, Status: status, Created: pv.CreationTimestamp.Time, Running: v.running(kindVolume)[key]}
			return row.withStep(), volumeFacts(pv), string(pv.UID)
		}
	case Pod:
		if pod, ok := one[*corev1.Pod](v.mirror, kindPod, key); ok {
			return find(v.Pods(), ref), podFacts(pod), string(pod.UID)
		}
	case Snapshot:
		if snapshot, ok := one[*snapshotv1.VolumeSnapshot](v.mirror, kindSnapshot, key); ok {
			return find(v.Snapshots(), ref), v.snapshotFacts(snapshot), string(snapshot.UID)
		}
	}
	return Row{}, nil, ""
}

func find(rows []Row, ref Ref) Row {
	if i := slices.IndexFunc(rows, func(row Row) bool { return row.Ref == ref }); i >= 0 {
		return rows[i]
	}
	return Row{}
}

// linked adds a fact with links, unless it is empty.
func linked(all []Fact, label string, refs ...Ref) []Fact {
	for _, ref := range refs {
		if ref.Name != "" {
			all = append(all, Fact{Label: label, Value: joined(ref.Namespace, ref.Name), Link: &ref})
		}
	}
	return all
}

func (v View) claimFacts(pvc *corev1.PersistentVolumeClaim) []Fact {
	requested := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	all := facts("Size", sizeOf(pvc), "Requested", requested.String(), "Class", deref(pvc.Spec.StorageClassName),
		"Attributes class", deref(pvc.Spec.VolumeAttributesClassName), "Access modes", modes(pvc.Spec.AccessModes))
	if source := pvc.Spec.DataSource; source != nil {
		all = append(all, facts("Made of", strings.ToLower(source.Kind)+"/"+source.Name)...)
	}
	all = linked(all, "Volume", Ref{Kind: Volume, Name: pvc.Spec.VolumeName})
	all = linked(all, "Used by", v.users()[keyOf(pvc)]...)
	pv, _ := one[*corev1.PersistentVolume](v.mirror, kindVolume, pvc.Spec.VolumeName)
	return linked(all, "Driver", Ref{Kind: Plugin, Name: driverOf(pv)})
}

func modes(all []corev1.PersistentVolumeAccessMode) string {
	var words []string
	for _, mode := range all {
		words = append(words, string(mode))
	}
	return strings.Join(words, ", ")
}

func volumeFacts(pv *corev1.PersistentVolume) []Fact {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	all := facts("Size", size.String(), "Class", pv.Spec.StorageClassName, "Reclaim policy",
		string(pv.Spec.PersistentVolumeReclaimPolicy), "Access modes", modes(pv.Spec.AccessModes))
	if ref := pv.Spec.ClaimRef; ref != nil {
		all = linked(all, "Claim", Ref{Claim, ref.Namespace, ref.Name})
	}
	if csi := pv.Spec.CSI; csi != nil {
		all = append(all, facts("Handle", csi.VolumeHandle, "Filesystem", csi.FSType)...)
		all = linked(all, "Driver", Ref{Kind: Plugin, Name: csi.Driver})
	}
	return all
}

func podFacts(pod *corev1.Pod) []Fact {
	all := facts("Phase", string(pod.Status.Phase), "Ready", PodReady(pod), "Restarts", number(int64(Restarts(pod))),
		"Node", pod.Spec.NodeName, "Message", pod.Status.Message)
	for _, name := range ClaimsOf(pod) {
		all = linked(all, "Claim", Ref{Claim, pod.Namespace, name})
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.CSI != nil {
			all = linked(all, "Inline volume of", Ref{Kind: Plugin, Name: volume.CSI.Driver})
		}
	}
	return all
}

func (v View) snapshotFacts(snapshot *snapshotv1.VolumeSnapshot) []Fact {
	all := facts("Size", restoreSize(snapshot), "Class", deref(snapshot.Spec.VolumeSnapshotClassName))
	all = linked(all, "Source", Ref{Claim, snapshot.Namespace, deref(snapshot.Spec.Source.PersistentVolumeClaimName)})
	if status := snapshot.Status; status != nil {
		all = append(all, facts("Content", deref(status.BoundVolumeSnapshotContentName))...)
		if status.Error != nil {
			all = append(all, facts("Error", deref(status.Error.Message))...)
		}
	}
	if content := v.contentOf(snapshot); content != nil {
		all = linked(all, "Driver", Ref{Kind: Plugin, Name: content.Spec.Driver})
	}
	return all
}

// eventsOf returns the events of an object, the latest first. Those of an earlier object
// of that name are not its own.
func (v View) eventsOf(kind, key, uid string) (found []Event) {
	v.mirror.mu.RLock()
	defer v.mirror.mu.RUnlock()
	for _, event := range v.mirror.events[about{kind, key}] {
		if of := string(event.InvolvedObject.UID); of != "" && uid != "" && of != uid {
			continue
		}
		found = append(found, newEvent(event))
	}
	sortEvents(found)
	return found
}

func newEvent(event *corev1.Event) Event {
	e := Event{
		Warning: event.Type == corev1.EventTypeWarning, Reason: event.Reason, Message: strings.TrimSpace(event.Message),
		Count: max(1, int(event.Count)),
		First: cmp.Or(event.FirstTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time),
	}
	e.Last = cmp.Or(event.LastTimestamp.Time, e.First)
	if event.Series != nil {
		e.Count, e.Last = int(event.Series.Count), event.Series.LastObservedTime.Time
	}
	return e
}

// Plugin returns a driver and the volumes that are its own; ok is false if it is not
// known.
func (v View) Plugin(name string) (driver Driver, claims []Row, ok bool) {
	for _, known := range v.Drivers() {
		if known.Name == name {
			driver, ok = known, true
		}
	}
	own := Ref{Kind: Plugin, Name: name}
	claims = slices.DeleteFunc(v.Claims(), func(row Row) bool {
		return !slices.ContainsFunc(row.Cells, func(cell Cell) bool { return slices.Contains(cell.Links, own) })
	})
	return driver, claims, ok
}

// VolumesOf counts the volumes of each driver.
func (v View) VolumesOf() map[string]int {
	count := map[string]int{}
	for _, pv := range all[*corev1.PersistentVolume](v.mirror, kindVolume) {
		count[driverOf(pv)]++
	}
	return count
}

// Name is the source's, such as "machine web1".
func (v View) Name() string { return v.source.Name() }

// stepNames are used by steps that are read from events.
const (
	stepProvision = "create"
	stepAttach    = "attach"
	stepSchedule  = "schedule"
	stepStart     = "start"
	stepSnapshot  = "snapshot"
)

func newStep(name string, ref Ref, begin, end time.Time) journal.StepEntry {
	step := journal.StepEntry{Step: name, Volume: ref.String(), Status: journal.Started, Started: begin, First: begin, Count: 1}
	if !end.IsZero() {
		step.Status, step.Took = journal.Done, max(0, end.Sub(begin))
	}
	return step
}
