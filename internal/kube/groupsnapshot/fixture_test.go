package groupsnapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driverName = "test.example.org"
	className  = "together"
	groupID    = "id-groupsnapshot-uid-a" // of content a, as the driver in memory names it
)

type change func(*groupv1.VolumeGroupSnapshotContent)

// group is a content as snapshot-controller creates it for a VolumeGroupSnapshot
// of the volumes vol-1 and vol-2.
func group(name string, changes ...change) *groupv1.VolumeGroupSnapshotContent {
	class := className
	object := &groupv1.VolumeGroupSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{claim.GroupSnapshotKeys().Finalizer}},
		Spec: groupv1.VolumeGroupSnapshotContentSpec{
			VolumeGroupSnapshotRef:       corev1.ObjectReference{Namespace: "ns", Name: "vgs-" + name, UID: types.UID("uid-" + name)},
			DeletionPolicy:               snapshotv1.VolumeSnapshotContentDelete,
			Driver:                       driverName,
			VolumeGroupSnapshotClassName: &class,
			Source:                       groupv1.VolumeGroupSnapshotContentSource{VolumeHandles: []string{"vol-1", "vol-2"}},
		},
	}
	for _, change := range changes {
		change(object)
	}
	return object
}

// existing makes the content one of a group snapshot that exists already.
func existing(id string, members ...string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) {
		o.Spec.VolumeGroupSnapshotClassName = nil
		o.Spec.Source = groupv1.VolumeGroupSnapshotContentSource{GroupSnapshotHandles: &groupv1.GroupSnapshotHandles{
			VolumeGroupSnapshotHandle: id, VolumeSnapshotHandles: members,
		}}
	}
}

func of(volumes ...string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) { o.Spec.Source.VolumeHandles = volumes }
}

func annotated(key, value string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value) }
}

func markedYes(o *groupv1.VolumeGroupSnapshotContent) {
	annotated(claim.GroupSnapshotKeys().BeingCreated, "yes")(o)
}

func userGone(o *groupv1.VolumeGroupSnapshotContent) {
	annotated(claim.GroupSnapshotKeys().BeingDeleted, "yes")(o)
}

func labelledFor(node string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) {
		metav1.SetMetaDataLabel(&o.ObjectMeta, claim.ManagedByLabel, node)
	}
}

func deleted(o *groupv1.VolumeGroupSnapshotContent) {
	now := metav1.Now()
	o.DeletionTimestamp = &now
}

func retain(o *groupv1.VolumeGroupSnapshotContent) {
	o.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
}

func unbound(o *groupv1.VolumeGroupSnapshotContent)     { o.Spec.VolumeGroupSnapshotRef.UID = "" }
func unfinalized(o *groupv1.VolumeGroupSnapshotContent) { o.Finalizers = nil }
func classless(o *groupv1.VolumeGroupSnapshotContent)   { o.Spec.VolumeGroupSnapshotClassName = nil }

func classed(name string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) { o.Spec.VolumeGroupSnapshotClassName = &name }
}

// takenAs records a group snapshot whose members have the given IDs.
func takenAs(id string, ready bool, members ...string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) {
		o.Status = &groupv1.VolumeGroupSnapshotContentStatus{VolumeGroupSnapshotHandle: &id, ReadyToUse: &ready}
		for _, member := range members {
			o.Status.VolumeSnapshotInfoList = append(o.Status.VolumeSnapshotInfoList, groupv1.VolumeSnapshotInfo{SnapshotHandle: member, ReadyToUse: &ready})
		}
	}
}

func failedWith(message string) change {
	return func(o *groupv1.VolumeGroupSnapshotContent) {
		no := false
		o.Status = &groupv1.VolumeGroupSnapshotContentStatus{ReadyToUse: &no, Error: &snapshotv1.VolumeSnapshotError{Message: &message}}
	}
}

func class(name string, parameters map[string]string) *groupv1.VolumeGroupSnapshotClass {
	return &groupv1.VolumeGroupSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driverName, Parameters: parameters,
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}

// options keep tests short; the pauses after errors are those of package apiserver.
func options() Options {
	return Options{Poll: content.Poll{Start: 5 * time.Millisecond, Max: 20 * time.Millisecond}}
}

type fixture struct {
	*apiserver.Cluster
	t      testing.TB
	driver *csidriver.Driver
}

// start runs the controller on a cluster with the objects and a class.
func start(t *testing.T, driver *csidriver.Driver, objects ...runtime.Object) fixture {
	t.Helper()
	f := prepare(t, driver, objects...)
	f.Run(f.Env, New(f.Env, options()))
	return f
}

func prepare(t *testing.T, driver *csidriver.Driver, objects ...runtime.Object) fixture {
	t.Helper()
	if driver == nil {
		driver = csidriver.New(driverName)
	}
	return fixture{apiserver.New(t, driver, append(objects, class(className, map[string]string{"tier": "cold"}))...), t, driver}
}

// startOn runs the controllers of one node on its own.
func startOn(t *testing.T, node string, driver *csidriver.Driver, objects ...runtime.Object) fixture {
	t.Helper()
	f := prepare(t, driver, objects...)
	f.onNode(node)
	return f
}

func (f fixture) onNode(node string) {
	f.Env.Scope = cluster.Scope{Node: node, Segments: map[string]string{"node": node}}
	f.Run(f.Env, New(f.Env, options()))
}

// volume is a PersistentVolume of the driver on a node.
func volume(handle, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
}

// find gives nil for a content that is gone. It lists, since some tests disturb
// what is read one by one.
func (f fixture) find(name string) *groupv1.VolumeGroupSnapshotContent {
	f.t.Helper()
	list, err := f.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents().List(f.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i]
		}
	}
	return nil
}

func (f fixture) get(name string) *groupv1.VolumeGroupSnapshotContent {
	f.t.Helper()
	object := f.find(name)
	if object == nil {
		f.t.Fatalf("content %s is gone", name)
	}
	return object
}

// becomes waits until a content has the state.
func (f fixture) becomes(name, state string, is func(*groupv1.VolumeGroupSnapshotContent) bool) *groupv1.VolumeGroupSnapshotContent {
	f.t.Helper()
	var object *groupv1.VolumeGroupSnapshotContent
	f.Eventually(func() error {
		if object = f.get(name); !is(object) {
			return fmt.Errorf("content %s is not %s: %+v, %+v", name, state, object.ObjectMeta, object.Status)
		}
		return nil
	})
	return object
}

func readyAndUnmarked(o *groupv1.VolumeGroupSnapshotContent) bool { return ready(o) && !marked(o) }

func fails(with string) func(*groupv1.VolumeGroupSnapshotContent) bool {
	return func(o *groupv1.VolumeGroupSnapshotContent) bool {
		return strings.Contains(kind{}.View(o).Error, with) && !ready(o)
	}
}

// vanishes waits until a content is gone.
func (f fixture) vanishes(name string) {
	f.t.Helper()
	f.Eventually(func() error {
		if f.find(name) != nil {
			return fmt.Errorf("content %s is still there", name)
		}
		return nil
	})
}

// stays fails if a content is deleted within a while.
func (f fixture) stays(name string) {
	f.t.Helper()
	f.Never(50*time.Millisecond, func() error {
		if f.find(name) == nil {
			return fmt.Errorf("content %s went", name)
		}
		return nil
	})
}

// happens waits for an event.
func (f fixture) happens(parts ...string) {
	f.t.Helper()
	f.Eventually(func() error {
		for _, event := range f.Events() {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(event, part) }) {
				return nil
			}
		}
		return fmt.Errorf("no event with %q", parts)
	})
}

// deleteByUser does what snapshot-controller does when a VolumeGroupSnapshot goes.
func (f fixture) deleteByUser(name string) {
	f.t.Helper()
	object := f.get(name)
	userGone(object)
	f.Put(object)
	f.Delete(object)
}

// empty fails unless the driver has no snapshot.
func (f fixture) empty() {
	f.t.Helper()
	if groups, snapshots := f.driver.GroupsLeft(), f.driver.SnapshotsLeft(); groups != nil || snapshots != nil {
		f.t.Errorf("still at the driver: groups %q, snapshots %q", groups, snapshots)
	}
}

func marked(o *groupv1.VolumeGroupSnapshotContent) bool {
	_, ok := o.Annotations[traits().Keys.BeingCreated]
	return ok
}
