package volumes

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

func pendingClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "manual"
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, c := range change {
		c(pvc)
	}
	return pvc
}

func offer(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "manual", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
	for _, c := range change {
		c(pv)
	}
	return pv
}

func TestMisfit_namesTheDifference(t *testing.T) {
	block, gold := corev1.PersistentVolumeBlock, "gold"
	now := metav1.Now()
	cases := []struct {
		name string
		pvc  *corev1.PersistentVolumeClaim
		pv   *corev1.PersistentVolume
		fits bool
	}{
		{"the same", pendingClaim(), offer("v"), true},
		{"larger", pendingClaim(), offer("v", capacity("2Gi")), true},
		{"smaller", pendingClaim(), offer("v", capacity("1Mi")), false},
		{"another class", pendingClaim(), offer("v", func(p *corev1.PersistentVolume) { p.Spec.StorageClassName = "" }), false},
		{"no class on either", pendingClaim(func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = nil }),
			offer("v", func(p *corev1.PersistentVolume) { p.Spec.StorageClassName = "" }), true},
		{"block", pendingClaim(), offer("v", func(p *corev1.PersistentVolume) { p.Spec.VolumeMode = &block }), false},
		{"other attributes", pendingClaim(), offer("v", func(p *corev1.PersistentVolume) { p.Spec.VolumeAttributesClassName = &gold }), false},
		{"a mode it lacks", pendingClaim(func(p *corev1.PersistentVolumeClaim) {
			p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}), offer("v"), false},
		{"going", pendingClaim(), offer("v", func(p *corev1.PersistentVolume) { p.DeletionTimestamp = &now }), false},
	}
	for _, c := range cases {
		if problem := misfit(c.pvc, c.pv); (problem == "") != c.fits {
			t.Errorf("%s: %q", c.name, problem)
		}
	}
}

func capacity(size string) func(*corev1.PersistentVolume) {
	return func(p *corev1.PersistentVolume) {
		p.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
}

func claimedBy(name, uid string) func(*corev1.PersistentVolume) {
	return func(p *corev1.PersistentVolume) {
		p.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: name}
		p.Spec.ClaimRef.UID = types.UID(uid)
	}
}

func at(zone string) func(*corev1.PersistentVolume) {
	return func(p *corev1.PersistentVolume) {
		p.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}}
	}
}

func tagged(value string) func(*corev1.PersistentVolume) {
	return func(p *corev1.PersistentVolume) { p.Labels = map[string]string{"kind": value} }
}

func TestBest_picksAsThePVControllerDoes(t *testing.T) {
	selecting := pendingClaim(func(p *corev1.PersistentVolumeClaim) {
		p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "fast"}}
	})
	cases := []struct {
		name    string
		pvc     *corev1.PersistentVolumeClaim
		offered []*corev1.PersistentVolume
		delayed bool
		want    string
	}{
		{"nothing", pendingClaim(), nil, false, ""},
		{"the smallest that fits", pendingClaim(), []*corev1.PersistentVolume{offer("a", capacity("9Gi")), offer("b", capacity("2Gi")), offer("c", capacity("1Mi"))}, false, "b"},
		{"the first of equals", pendingClaim(), []*corev1.PersistentVolume{offer("a"), offer("b")}, false, "a"},
		{"the reserved one, though larger", pendingClaim(), []*corev1.PersistentVolume{
			offer("a"), offer("b", capacity("9Gi"), claimedBy("c", "")),
		}, false, "b"},
		{"none that is reserved for another", pendingClaim(), []*corev1.PersistentVolume{
			offer("a", claimedBy("other", "")), offer("b", claimedBy("c", "old")),
		}, false, ""},
		{"none that is free before a pod uses the claim", pendingClaim(), []*corev1.PersistentVolume{offer("a")}, true, ""},
		{"the reserved one before a pod uses the claim", pendingClaim(), []*corev1.PersistentVolume{
			offer("a", claimedBy("c", "u")),
		}, true, "a"},
		{"by labels", selecting, []*corev1.PersistentVolume{offer("a"), offer("b", tagged("slow")), offer("c", tagged("fast"))}, false, "c"},
		{"only what can be reached from here", pendingClaim(), []*corev1.PersistentVolume{offer("a", at("elsewhere")), offer("b", at("here"))}, false, "b"},
	}
	for _, c := range cases {
		got, err := best(c.pvc, c.offered, c.delayed, map[string]string{"zone": "here"})
		name := ""
		if got != nil {
			name = got.Name
		}
		if err != nil || name != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.name, name, err, c.want)
		}
	}
}

func TestNextOf_isDecidedByTheContentAlone(t *testing.T) {
	keys := claim.VolumeSnapshotKeys()
	type c = snapshotv1.VolumeSnapshotContent
	handle, yes, no, now := "h", true, false, metav1.Now()
	content := func(change ...func(*c)) *c {
		made := &c{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{keys.Finalizer}, Annotations: map[string]string{}}}
		made.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentDelete
		made.Spec.Source.VolumeHandle = &handle
		made.Spec.VolumeSnapshotRef.UID = "u"
		for _, f := range change {
			f(made)
		}
		return made
	}
	deleting := func(x *c) { x.DeletionTimestamp = &now }
	unwanted := func(x *c) { x.Annotations[keys.BeingDeleted] = "yes" }
	marked := func(x *c) { x.Annotations[keys.BeingCreated] = "yes" }
	abandoned := func(x *c) { x.Annotations[AbandonAnnotation] = "true" }
	retain := func(x *c) { x.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain }
	bare := func(x *c) { x.Finalizers = nil }
	known := func(ready *bool) func(*c) {
		return func(x *c) {
			x.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle, ReadyToUse: ready}
		}
	}
	static := func(x *c) { x.Spec.Source = snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle} }
	unbound := func(x *c) { x.Spec.VolumeSnapshotRef.UID = "" }
	cases := []struct {
		name string
		of   *c
		want contentStep
	}{
		{"without its finalizer", content(bare), contentProtect},
		{"new", content(), contentCreate},
		{"asked for", content(marked), contentCreate},
		{"asked for, and deleted meanwhile", content(marked, deleting, unwanted), contentCreate},
		{"asked for, deleted, and given up", content(marked, deleting, unwanted, abandoned), contentRelease},
		{"taken, not ready", content(known(&no)), contentPoll},
		{"ready", content(known(&yes)), contentNothing},
		{"never taken, and unwanted", content(unwanted), contentNothing},
		{"never taken, and deleted with its snapshot", content(deleting, unwanted), contentRelease},
		{"deleted by itself, in use by its snapshot", content(deleting, known(&yes)), contentNothing},
		{"deleted with its snapshot", content(deleting, unwanted, known(&yes)), contentDelete},
		{"deleted, to be kept", content(deleting, unwanted, retain, known(&yes)), contentRelease},
		{"static", content(static), contentInspect},
		{"static, inspected, not ready", content(static, known(&no)), contentInspect},
		{"static, ready", content(static, known(&yes)), contentNothing},
		{"static, never bound, deleted", content(static, unbound, deleting), contentRelease},
		{"static, never bound, known, deleted", content(static, unbound, deleting, known(&yes)), contentDelete},
	}
	for _, c := range cases {
		if got := nextOf(c.of); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
