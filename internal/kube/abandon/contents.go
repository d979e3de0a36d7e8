package abandon

import (
	"context"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

func (r *run) contents(ctx context.Context) error {
	const kind = "VolumeSnapshotContent"
	client := r.Clients.Snapshots.SnapshotV1().VolumeSnapshotContents()
	all, err := list(ctx, kind, client, metav1.ListOptions{},
		func(l *snapshotv1.VolumeSnapshotContentList) []snapshotv1.VolumeSnapshotContent { return l.Items })
	if err != nil {
		return err
	}
	for i := range all {
		content := &all[i]
		var handles []string
		if handle := content.Spec.Source.VolumeHandle; handle != nil {
			handles = append(handles, *handle)
		}
		if !r.has(content.Spec.Driver, content, handles...) {
			continue
		}
		err := endContent(ctx, r, client, kind, "VolumeSnapshot", content, claim.VolumeSnapshotKeys().Finalizer,
			content.Spec.VolumeSnapshotRef)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) groups(ctx context.Context) error {
	const kind = "VolumeGroupSnapshotContent"
	client := r.Clients.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents()
	all, err := list(ctx, kind, client, metav1.ListOptions{},
		func(l *groupv1.VolumeGroupSnapshotContentList) []groupv1.VolumeGroupSnapshotContent { return l.Items })
	if err != nil {
		return err
	}
	for i := range all {
		content := &all[i]
		if !r.has(content.Spec.Driver, content, content.Spec.Source.VolumeHandles...) {
			continue
		}
		err := endContent(ctx, r, client, kind, "VolumeGroupSnapshot", content, claim.GroupSnapshotKeys().Finalizer,
			content.Spec.VolumeGroupSnapshotRef)
		if err != nil {
			return err
		}
	}
	return nil
}
