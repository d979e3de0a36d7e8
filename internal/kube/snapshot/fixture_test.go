package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	className  = "cold"
)

type change func(*snapshotv1.VolumeSnapshotContent)

// dynamic is a content as snapshot-controller creates it for a VolumeSnapshot.
func dynamic(name string, changes ...change) *snapshotv1.VolumeSnapshotContent {
	volume, class := "vol-"+name, className
	object := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{claim.VolumeSnapshotKeys().Finalizer}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef:       corev1.ObjectReference{Namespace: "ns", Name: "vs-" + name, UID: types.UID("uid-" + name)},
			DeletionPolicy:          snapshotv1.VolumeSnapshotContentDelete,
			Driver:                  driverName,
			VolumeSnapshotClassName: &class,
			Source:                  snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &volume},
		},
	}
	for _, change := range changes {
		change(object)
	}
	return object
}

// staticFor is a content that an administrator creates for an existing snapshot.
func staticFor(name, handle string, changes ...change) *snapshotv1.VolumeSnapshotContent {
	made := append([]change{func(o *snapshotv1.VolumeSnapshotContent) {
		o.Spec.Source = snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle}
		o.Spec.VolumeSnapshotClassName = nil
	}}, changes...)
	return dynamic(name, made...)
}

func annotated(key, value string) change {
	return func(o *snapshotv1.VolumeSnapshotContent) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value) }
}

func labelledFor(node string) change {
	return func(o *snapshotv1.VolumeSnapshotContent) {
		metav1.SetMetaDataLabel(&o.ObjectMeta, claim.ManagedByLabel, node)
	}
}

func markedYes(o *snapshotv1.VolumeSnapshotContent) {
	annotated(claim.VolumeSnapshotKeys().BeingCreated, "yes")(o)
}

func userGone(o *snapshotv1.VolumeSnapshotContent) {
	annotated(claim.VolumeSnapshotKeys().BeingDeleted, "yes")(o)
}

func deleted(o *snapshotv1.VolumeSnapshotContent) {
	now := metav1.Now()
	o.DeletionTimestamp = &now
}

func retain(o *snapshotv1.VolumeSnapshotContent) {
	o.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
}

func unbound(o *snapshotv1.VolumeSnapshotContent)     { o.Spec.VolumeSnapshotRef.UID = "" }
func unfinalized(o *snapshotv1.VolumeSnapshotContent) { o.Finalizers = nil }

func inGroup(o *snapshotv1.VolumeSnapshotContent) {
	annotated(claim.GroupMemberAnnotation, "g")(o)
	o.Spec.VolumeSnapshotClassName = nil
}

func status(o *snapshotv1.VolumeSnapshotContent) *snapshotv1.VolumeSnapshotContentStatus {
	if o.Status == nil {
		o.Status = &snapshotv1.VolumeSnapshotContentStatus{}
	}
	return o.Status
}

func takenAs(handle string, ready bool) change {
	return func(o *snapshotv1.VolumeSnapshotContent) {
		status(o).SnapshotHandle, status(o).ReadyToUse = &handle, &ready
	}
}

func ofGroup(handle string) change {
	return func(o *snapshotv1.VolumeSnapshotContent) { status(o).VolumeGroupSnapshotHandle = &handle }
}

func failedWith(message string) change {
	return func(o *snapshotv1.VolumeSnapshotContent) {
		no := false
		status(o).ReadyToUse, status(o).Error = &no, &snapshotv1.VolumeSnapshotError{Message: &message}
	}
}

func forgotten(o *snapshotv1.VolumeSnapshotContent) { status(o) }

func class(parameters map[string]string) *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Driver: driverName, Parameters: parameters,
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}

// fastPoll keeps tests short; the pauses after errors are those of package apiserver.
func fastPoll() content.Poll {
	return content.Poll{Start: 5 * time.Millisecond, Max: 20 * time.Millisecond}
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
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	return f
}

func prepare(t *testing.T, driver *csidriver.Driver, objects ...runtime.Object) fixture {
	t.Helper()
	if driver == nil {
		driver = csidriver.New(driverName)
	}
	return fixture{apiserver.New(t, driver, append(objects, class(map[string]string{"tier": "cold"}))...), t, driver}
}

// node makes the process that of one node.
func (f fixture) node(name string) {
	f.Env.Scope = cluster.Scope{Node: name, Segments: map[string]string{"node": name}}
}

func (f fixture) get(name string) *snapshotv1.VolumeSnapshotContent {
	f.t.Helper()
	object, err := f.Snapshots.SnapshotV1().VolumeSnapshotContents().Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return object
}

func (f fixture) exists(name string) bool {
	_, err := f.Snapshots.SnapshotV1().VolumeSnapshotContents().Get(f.Context(), name, metav1.GetOptions{})
	return err == nil
}

// becomes waits until a content has the state.
func (f fixture) becomes(name, state string, is func(*snapshotv1.VolumeSnapshotContent) bool) *snapshotv1.VolumeSnapshotContent {
	f.t.Helper()
	var object *snapshotv1.VolumeSnapshotContent
	f.Eventually(func() error {
		if object = f.get(name); !is(object) {
			return fmt.Errorf("content %s is not %s: %+v, %+v", name, state, object.ObjectMeta, object.Status)
		}
		return nil
	})
	return object
}

func readyAndUnmarked(o *snapshotv1.VolumeSnapshotContent) bool { return ready(o) && !marked(o) }

func errorOf(o *snapshotv1.VolumeSnapshotContent) string {
	if o.Status == nil || o.Status.Error == nil || o.Status.Error.Message == nil {
		return ""
	}
	return *o.Status.Error.Message
}

func fails(with string) func(*snapshotv1.VolumeSnapshotContent) bool {
	return func(o *snapshotv1.VolumeSnapshotContent) bool { return strings.Contains(errorOf(o), with) && !ready(o) }
}

// vanishes waits until a content is gone.
func (f fixture) vanishes(name string) {
	f.t.Helper()
	f.Eventually(func() error {
		if f.exists(name) {
			return fmt.Errorf("content %s is still there", name)
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

// deleteByUser does what snapshot-controller does when a VolumeSnapshot goes.
func (f fixture) deleteByUser(name string) {
	f.t.Helper()
	object := f.get(name)
	userGone(object)
	f.Put(object)
	f.Delete(object)
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

func (f fixture) listed() []snapshotv1.VolumeSnapshotContent {
	list, err := f.Snapshots.SnapshotV1().VolumeSnapshotContents().List(f.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// cached finds a content in a list, which the tests' reactions do not disturb.
func (f fixture) cached(name string) *snapshotv1.VolumeSnapshotContent {
	for _, o := range f.listed() {
		if o.Name == name {
			return &o
		}
	}
	return nil
}

// eventually is becomes for a test in which single reads fail.
func (f fixture) eventually(name string, is func(*snapshotv1.VolumeSnapshotContent) bool) {
	f.t.Helper()
	f.Eventually(func() error {
		if o := f.cached(name); o == nil || !is(o) {
			return fmt.Errorf("content %s: %+v", name, o)
		}
		return nil
	})
}

// insistByUser is deleteByUser where single reads fail.
func (f fixture) insistByUser(name string) {
	f.t.Helper()
	object := f.cached(name)
	userGone(object)
	f.Put(object)
	f.Delete(object)
}

func marked(o *snapshotv1.VolumeSnapshotContent) bool {
	_, ok := o.Annotations[traits().Keys.BeingCreated]
	return ok
}
