package groupsnapshot

import (
	"context"
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

type object = *groupv1.VolumeGroupSnapshotContent

func TestContents(t *testing.T) { suite().Run(t) }

func suite() *contenttest.Suite[object] {
	return &contenttest.Suite[object]{
		Traits: traits(), New: New, View: kind{}.View,
		Kind: func(env *cluster.Env) content.Kind[object] { return kind{env, env.Set.GroupClasses()} },
		API: func(c *apiserver.Cluster) cluster.Client[object] {
			return c.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents()
		},
		List: func(ctx context.Context, c *apiserver.Cluster) (all []object, err error) {
			list, err := c.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			return all, nil
		},
		Bare: func(meta metav1.ObjectMeta) object {
			return &groupv1.VolumeGroupSnapshotContent{ObjectMeta: meta, Spec: groupv1.VolumeGroupSnapshotContentSpec{
				Source: groupv1.VolumeGroupSnapshotContentSource{VolumeHandles: []string{"vol-1", "vol-2"}},
			}}
		},
		Fields: func(o object) contenttest.Fields {
			return contenttest.Fields{
				Driver: &o.Spec.Driver, Class: &o.Spec.VolumeGroupSnapshotClassName,
				Policy: &o.Spec.DeletionPolicy, Ref: &o.Spec.VolumeGroupSnapshotRef,
			}
		},
		Class: func(name, driver string, parameters map[string]string) runtime.Object {
			return &groupv1.VolumeGroupSnapshotClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, Parameters: parameters,
				DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			}
		},
		Of: func(o object, volumes ...string) { o.Spec.Source.VolumeHandles = volumes },
		Existing: func(o object, s contenttest.Snapshot) {
			o.Spec.Source = groupv1.VolumeGroupSnapshotContentSource{GroupSnapshotHandles: &groupv1.GroupSnapshotHandles{
				VolumeGroupSnapshotHandle: s.ID, VolumeSnapshotHandles: s.Members,
			}}
		},
		Record: func(o object, s contenttest.Snapshot, ready bool) {
			o.Status = &groupv1.VolumeGroupSnapshotContentStatus{VolumeGroupSnapshotHandle: &s.ID, ReadyToUse: &ready}
			for _, member := range s.Members {
				info := groupv1.VolumeSnapshotInfo{SnapshotHandle: member, ReadyToUse: &ready}
				o.Status.VolumeSnapshotInfoList = append(o.Status.VolumeSnapshotInfoList, info)
			}
		},
		Fail: func(o object, message string) {
			o.Status = &groupv1.VolumeGroupSnapshotContentStatus{
				ReadyToUse: new(bool), Error: &snapshotv1.VolumeSnapshotError{Message: &message},
			}
		},
		Members: members,
		Prefix:  "groupsnapshot", Object: "volumegroupsnapshot",
		Create: "CreateVolumeGroupSnapshot", Delete: "DeleteVolumeGroupSnapshot",
		Inspect: "GetVolumeGroupSnapshot", Poll: "GetVolumeGroupSnapshot",
		InspectSecret: "group-snapshotter-get-secret", Absent: "NotFound",
		Add: func(d *csidriver.Driver, name string) contenttest.Snapshot {
			id, members := d.AddGroup(name, "vol-1", "vol-2")
			return contenttest.Snapshot{ID: id, Members: members}
		},
		Left: (*csidriver.Driver).GroupsLeft, PerContent: 2,
		Capability: "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
		Lacking: map[string]func(*csidriver.Driver){
			"no service":    func(d *csidriver.Driver) { d.Plugin = d.Plugin[:1] },
			"no capability": func(d *csidriver.Driver) { d.Groups.Offered = nil },
		},
	}
}
