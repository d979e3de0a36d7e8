package snapshot

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

type object = *snapshotv1.VolumeSnapshotContent

func TestContents(t *testing.T) { suite().Run(t) }

func suite() *contenttest.Suite[object] {
	return &contenttest.Suite[object]{
		Traits: traits(), New: New, View: kind{}.View,
		Kind: func(env *cluster.Env) content.Kind[object] { return kind{env, env.Set.SnapshotClasses()} },
		API: func(c *apiserver.Cluster) cluster.Client[object] {
			return c.Snapshots.SnapshotV1().VolumeSnapshotContents()
		},
		List: func(ctx context.Context, c *apiserver.Cluster) (all []object, err error) {
			list, err := c.Snapshots.SnapshotV1().VolumeSnapshotContents().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			return all, nil
		},
		Bare: func(meta metav1.ObjectMeta) object {
			volume := "vol-" + meta.Name
			return &snapshotv1.VolumeSnapshotContent{ObjectMeta: meta, Spec: snapshotv1.VolumeSnapshotContentSpec{
				Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &volume},
			}}
		},
		Fields: func(o object) contenttest.Fields {
			return contenttest.Fields{
				Driver: &o.Spec.Driver, Class: &o.Spec.VolumeSnapshotClassName,
				Policy: &o.Spec.DeletionPolicy, Ref: &o.Spec.VolumeSnapshotRef,
			}
		},
		Class: func(name, driver string, parameters map[string]string) runtime.Object {
			return &snapshotv1.VolumeSnapshotClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, Parameters: parameters,
				DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			}
		},
		Of: func(o object, volumes ...string) {
			o.Spec.Source = snapshotv1.VolumeSnapshotContentSource{}
			if len(volumes) > 0 {
				o.Spec.Source.VolumeHandle = &volumes[0]
			}
		},
		Existing: func(o object, s contenttest.Snapshot) {
			o.Spec.Source = snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &s.ID}
		},
		Record: func(o object, s contenttest.Snapshot, ready bool) {
			status(o).SnapshotHandle, status(o).ReadyToUse = &s.ID, &ready
		},
		Fail: func(o object, message string) {
			status(o).ReadyToUse, status(o).Error = new(bool), &snapshotv1.VolumeSnapshotError{Message: &message}
		},
		Members: func(object) []string { return nil },
		Prefix:  "snapshot", Object: "volumesnapshot",
		Create: "CreateSnapshot", Delete: "DeleteSnapshot", Inspect: "ListSnapshots", Poll: "CreateSnapshot",
		InspectSecret: "snapshotter-list-secret", Absent: "no such snapshot",
		Add: func(d *csidriver.Driver, name string) contenttest.Snapshot {
			return contenttest.Snapshot{ID: d.AddSnapshot(name, "vol-a")}
		},
		Left: (*csidriver.Driver).SnapshotsLeft, PerContent: 1,
		Capability: "CREATE_DELETE_SNAPSHOT",
		Lacking: map[string]func(*csidriver.Driver){"no capability": func(d *csidriver.Driver) {
			d.Controller = []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
		}},
	}
}

func status(o object) *snapshotv1.VolumeSnapshotContentStatus {
	if o.Status == nil {
		o.Status = &snapshotv1.VolumeSnapshotContentStatus{}
	}
	return o.Status
}

// inGroup makes a content one of a group's member, as snapshot-controller creates it.
func inGroup(o object) {
	suite().Annotated(claim.GroupMemberAnnotation, "g")(o)
	suite().Classless(o)
}

// ofGroup returns a change that records the group of the snapshot.
func ofGroup(handle string) func(object) {
	return func(o object) { status(o).VolumeGroupSnapshotHandle = &handle }
}

// as returns a change that records a snapshot.
func as(handle string, ready bool) func(object) {
	return suite().Recorded(contenttest.Snapshot{ID: handle}, ready)
}
