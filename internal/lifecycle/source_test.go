package lifecycle_test

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func claimNamed(name, size string) *corev1.PersistentVolumeClaim {
	class := "fast"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

// expect compares an error with the text that it must have; "" is none.
func expect(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want %q", name, err, want)
	}
}

func sourceClaim() claim.SourceRef {
	return claim.SourceRef{Kind: claim.SourceClaim, Namespace: "ns", Name: "src"}
}

func sourceSnapshot() claim.SourceRef {
	return claim.SourceRef{Kind: claim.SourceSnapshot, Namespace: "ns", Name: "s"}
}

// TestCheckGrant has the rules of Gateway API and KEP-3294: the grant is in the source's
// namespace, names the claim's namespace, and allows the source's kind, or it alone.
func TestCheckGrant(t *testing.T) {
	name, other, empty := "s", "other", ""
	from := grant.ReferenceGrantFrom{Kind: "PersistentVolumeClaim", Namespace: "ns"}
	to := grant.ReferenceGrantTo{Group: claim.SnapshotGroup, Kind: "VolumeSnapshot"}
	foreign := claim.SourceRef{Kind: claim.SourceSnapshot, Namespace: "far", Name: "s"}
	const refused = `no ReferenceGrant in namespace "far" lets claims of namespace "ns" use the source, VolumeSnapshot "far/s"`
	for _, row := range []struct {
		name   string
		source claim.SourceRef
		change func(*grant.ReferenceGrant)
		want   string
	}{
		{"any snapshot", foreign, func(*grant.ReferenceGrant) {}, ""},
		{"no source", claim.SourceRef{}, func(g *grant.ReferenceGrant) { g.Spec.To = nil }, ""},
		{"the claim's own namespace", sourceSnapshot(), func(g *grant.ReferenceGrant) { g.Spec.To = nil }, ""},
		{"this snapshot", foreign, func(g *grant.ReferenceGrant) { g.Spec.To[0].Name = &name }, ""},
		{"any snapshot, by an empty name", foreign, func(g *grant.ReferenceGrant) { g.Spec.To[0].Name = &empty }, ""},
		{"another snapshot", foreign, func(g *grant.ReferenceGrant) { g.Spec.To[0].Name = &other }, refused},
		{"claims alone", foreign, func(g *grant.ReferenceGrant) {
			g.Spec.To[0] = grant.ReferenceGrantTo{Kind: "PersistentVolumeClaim"}
		}, refused},
		{"a snapshot of another group", foreign, func(g *grant.ReferenceGrant) { g.Spec.To[0].Group = "x" }, refused},
		{"claims of another namespace", foreign, func(g *grant.ReferenceGrant) { g.Spec.From[0].Namespace = "other" }, refused},
		{"pods of the namespace", foreign, func(g *grant.ReferenceGrant) { g.Spec.From[0].Kind = "Pod" }, refused},
		{"a grant of another namespace", foreign, func(g *grant.ReferenceGrant) { g.Namespace = "ns" }, refused},
		{"claims, for a claim", claim.SourceRef{Kind: claim.SourceClaim, Namespace: "far", Name: "s"}, func(g *grant.ReferenceGrant) {
			g.Spec.To[0] = grant.ReferenceGrantTo{Kind: "PersistentVolumeClaim"}
		}, ""},
	} {
		made := &grant.ReferenceGrant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "far", Name: "g"},
			Spec: grant.ReferenceGrantSpec{
				From: []grant.ReferenceGrantFrom{from}, To: []grant.ReferenceGrantTo{to},
			},
		}
		row.change(made)
		expect(t, row.name, lifecycle.CheckGrant(claimNamed("a", "1Gi"), row.source, []*grant.ReferenceGrant{made}), row.want)
	}
	expect(t, "no grant", lifecycle.CheckGrant(claimNamed("a", "1Gi"), foreign, nil), refused)
}

func TestCheckClone_everyReason(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	type change func(pvc, source *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)
	for _, row := range []struct {
		name   string
		change change
		want   string
	}{
		{"fits", func(_, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {}, ""},
		{"an empty class", func(_, s *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { *s.Spec.StorageClassName = "" }, ""},
		{"no class", func(_, s *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { s.Spec.StorageClassName = nil }, "names no StorageClass"},
		{"being deleted", func(_, s *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			s.DeletionTimestamp = &metav1.Time{}
		}, "is being deleted"},
		{"not bound", func(_, s *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			s.Status.Phase = corev1.ClaimPending
		}, "has no volume yet"},
		{"larger", func(p, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			p.Spec.Resources = claimNamed("", "1Mi").Spec.Resources
		}, "1Mi is less than the source's 1Gi"},
		{"another mode", func(p, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { p.Spec.VolumeMode = &block }, "spec.volumeMode differs"},
		{"another driver", func(_, _ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "e" }, "another driver than d"},
		{"no CSI volume", func(_, _ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.CSI = nil }, "another driver than d"},
		{"another claim's", func(_, _ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "other" }, "is not bound to the source"},
		{"of no claim", func(_, _ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }, "is not bound to the source"},
		{"released", func(_, _ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Status.Phase = corev1.VolumeReleased
		}, "is Released, not Bound"},
	} {
		pvc, source, pv := claimNamed("a", "1Gi"), claimNamed("src", "1Gi"), volume("pv", "d", "v")
		pv.Status.Phase, pv.Spec.ClaimRef = corev1.VolumeBound, &corev1.ObjectReference{Namespace: "ns", Name: "src", UID: "uid-src"}
		row.change(pvc, source, pv)
		expect(t, row.name, lifecycle.CheckClone(pvc, sourceClaim(), source, pv, "d"), row.want)
	}
	expect(t, "absent", lifecycle.CheckClone(claimNamed("a", "1Gi"), sourceClaim(), nil, nil, "d"), `PersistentVolumeClaim "ns/src", does not exist`)
	expect(t, "no volume", lifecycle.CheckClone(claimNamed("a", "1Gi"), sourceClaim(), claimNamed("src", "1Gi"), nil, "d"), "has no volume yet")
}

func TestCheckSnapshot_everyReason(t *testing.T) {
	yes, no, name, size, handle := true, false, "content", resource.MustParse("1Gi"), "snap-1"
	filesystem, block := corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	type change func(*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent)
	for _, row := range []struct {
		name   string
		change change
		want   string
	}{
		{"fits", func(*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {}, ""},
		{"being deleted", func(s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			s.DeletionTimestamp = &metav1.Time{}
		}, "is being deleted"},
		{"no status", func(s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) { s.Status = nil }, "is not bound"},
		{"not ready", func(s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) { s.Status.ReadyToUse = &no }, "is not ready yet"},
		{"larger", func(s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			larger := resource.MustParse("2Gi")
			s.Status.RestoreSize = &larger
		}, "needs 2Gi, more than the claim's"},
		{"another's content", func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			c.Spec.VolumeSnapshotRef.UID = "other"
		}, "belongs to another VolumeSnapshot"},
		{"another driver's", func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) { c.Spec.Driver = "e" }, `is of driver "e", not "d"`},
		{"content not ready", func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) { c.Status.ReadyToUse = nil }, `"content" of the source is not ready`},
		{"no handle", func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) { c.Status.SnapshotHandle = nil }, "has no snapshotHandle"},
		{"another mode", func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			c.Spec.SourceVolumeMode = &block
		}, "allow-volume-mode-change=true would allow that"},
		{"another mode, allowed", func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			c.Spec.SourceVolumeMode, c.Annotations = &block, map[string]string{lifecycle.AllowModeChangeAnnotation: "true"}
		}, ""},
	} {
		snapshot := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "uid-s"},
			Status:     &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &name, ReadyToUse: &yes, RestoreSize: &size},
		}
		content := &snapshotv1.VolumeSnapshotContent{
			Spec: snapshotv1.VolumeSnapshotContentSpec{
				Driver: "d", SourceVolumeMode: &filesystem, VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: "s", UID: "uid-s"},
			},
			Status: &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: &yes, SnapshotHandle: &handle},
		}
		row.change(snapshot, content)
		pvc := claimNamed("a", "1Gi")
		err := lifecycle.CheckSnapshot(pvc, sourceSnapshot(), snapshot, false)
		if err == nil {
			err = lifecycle.CheckContent(pvc, snapshot, content, "d", false)
		}
		expect(t, row.name, err, row.want)
		if row.name == "being deleted" {
			expect(t, "kept for this restore", lifecycle.CheckSnapshot(pvc, sourceSnapshot(), snapshot, true), "")
		}
		if row.name == "another mode" {
			expect(t, "any mode", lifecycle.CheckContent(pvc, snapshot, content, "d", true), "")
		}
		if row.name == "fits" {
			expect(t, "no content", lifecycle.CheckContent(pvc, snapshot, nil, "d", false), `VolumeSnapshotContent "content" of the source does not exist`)
		}
	}
	expect(t, "absent", lifecycle.CheckSnapshot(claimNamed("a", "1Gi"), sourceSnapshot(), nil, false), `VolumeSnapshot "ns/s", does not exist`)
}
