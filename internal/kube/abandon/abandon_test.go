package abandon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/abandon"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const driverName = "local.example"

func newVolume(name, node string, phase corev1.PersistentVolumePhase, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{claim.ProvisionerFinalizer}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "ns", Name: name},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "h-" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
	for _, c := range change {
		c(pv)
	}
	return pv
}

func retain(pv *corev1.PersistentVolume) {
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func newContent(name, label, handle string, deleted bool) *snapshotv1.VolumeSnapshotContent {
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{claim.VolumeSnapshotKeys().Finalizer}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driverName, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handle},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: name},
		},
	}
	if label != "" {
		content.Labels = map[string]string{claim.ManagedByLabel: label}
	}
	if deleted {
		content.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
	}
	return content
}

func newClaim(name, node string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{
		"volume.kubernetes.io/storage-provisioner": driverName, "volume.kubernetes.io/selected-node": node,
	}}}
}

func newIntents(name, node string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: apiserver.Intents, Name: name, Labels: map[string]string{"holdfast.dev/intents": "x"},
			Annotations: map[string]string{"holdfast.dev/driver": driverName, "holdfast.dev/node": node},
		},
		Data: map[string]string{"uid": "{}"},
	}
}

// lost is a cluster with a node n1, which was removed, and a node n2.
func lost(t *testing.T, more ...runtime.Object) *apiserver.Cluster {
	t.Helper()
	return apiserver.New(t, csidriver.New(driverName), append(more,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
		newVolume("released", "n1", corev1.VolumeReleased), newVolume("bound", "n1", corev1.VolumeBound),
		newVolume("retained", "n1", corev1.VolumeReleased, retain), newVolume("alive", "n2", corev1.VolumeReleased),
		newVolume("foreign", "n1", corev1.VolumeReleased, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }),
		newContent("labelled", "n1", "h-gone", true), newContent("by-volume", "", "h-bound", true),
		newContent("kept", "n1", "h-bound", false), newContent("elsewhere", "n2", "h-alive", true),
		newClaim("pending", "n1"), newClaim("other", "n2"), newIntents("i-n1", "n1"), newIntents("i-n2", "n2"),
	)...)
}

func describe(entries []abandon.Entry) (lines []string) {
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s %s %v %s", e.Kind, e.Name, e.Ended, e.Why))
	}
	slices.Sort(lines)
	return lines
}

// state lists what remains, with the finalizers of objects that are not being deleted.
func state(t *testing.T, c *apiserver.Cluster) (objects []string) {
	t.Helper()
	ctx := c.Context()
	volumes, err := c.Core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pv := range volumes.Items {
		objects = append(objects, fmt.Sprintf("%s %d", pv.Name, len(pv.Finalizers)))
	}
	contents, err := c.Snapshots.SnapshotV1().VolumeSnapshotContents().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range contents.Items {
		objects = append(objects, content.Name)
	}
	maps, err := c.Core.CoreV1().ConfigMaps(apiserver.Intents).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range maps.Items {
		objects = append(objects, object.Name)
	}
	for _, name := range []string{"pending", "other"} {
		pvc, err := c.Core.CoreV1().PersistentVolumeClaims("ns").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, name+" on "+pvc.Annotations["volume.kubernetes.io/selected-node"])
	}
	return objects
}

func TestNode_endsWhatIsDeletedAndKeepsTheRest(t *testing.T) {
	c := lost(t)
	before := state(t, c)
	options := abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName, DryRun: true}
	planned, err := abandon.Node(t.Context(), "n1", options)
	if err != nil {
		t.Fatal(err)
	}
	if after := state(t, c); !slices.Equal(before, after) {
		t.Errorf("a dry run made of %q %q", before, after)
	}
	options.DryRun = false
	done, err := abandon.Node(t.Context(), "n1", options)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ConfigMap holdfast-intents/i-n1 true ",
		`PersistentVolume bound false it is bound to PersistentVolumeClaim "ns/bound": delete the claim, then repeat this command`,
		"PersistentVolume released true ",
		"PersistentVolume retained false its policy is Retain: delete it when its record is not needed any more",
		"PersistentVolumeClaim ns/pending true ",
		"VolumeSnapshotContent by-volume true ",
		`VolumeSnapshotContent kept false delete VolumeSnapshot "ns/kept", then repeat this command`,
		"VolumeSnapshotContent labelled true ",
	}
	for name, got := range map[string][]string{"planned": describe(planned), "done": describe(done)} {
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	remains := []string{"alive 1", "bound 1", "foreign 1", "retained 0", "elsewhere", "kept", "i-n2", "pending on ", "other on n2"}
	if after := state(t, c); !slices.Equal(after, remains) {
		t.Errorf("%q remain, want %q", after, remains)
	}
	// A second call finds nothing more to end.
	again, err := abandon.Node(t.Context(), "n1", options)
	if err != nil || slices.ContainsFunc(again, func(e abandon.Entry) bool { return e.Ended }) {
		t.Errorf("repeated: %v, %v", describe(again), err)
	}
}

func TestNode_refusesANodeThatExists(t *testing.T) {
	c := lost(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	before := state(t, c)
	_, err := abandon.Node(t.Context(), "n1", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName})
	if err == nil || !strings.Contains(err.Error(), `node "n1" exists`) {
		t.Errorf("%v", err)
	}
	if after := state(t, c); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// TestNode_refusesANodeThatHasAnotherName: a Node with the label by which the affinity of
// the volumes names theirs can use them, and its driver can delete them.
func TestNode_refusesANodeThatHasAnotherName(t *testing.T) {
	c := lost(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "renamed", Labels: map[string]string{"topology.example/node": "n1"}}})
	before := state(t, c)
	_, err := abandon.Node(t.Context(), "n1", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName})
	if err == nil || !strings.Contains(err.Error(), `node "renamed" has the label topology.example/node=n1`) {
		t.Errorf("%v", err)
	}
	if after := state(t, c); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// TestNode_keepsTheVolumesOfAZone: they are reached by other nodes, also by some that do
// not exist yet.
func TestNode_keepsTheVolumesOfAZone(t *testing.T) {
	c := lost(t, newVolume("zonal", "us-east-1a", corev1.VolumeReleased, func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = "topology.ebs.csi.aws.com/zone"
	}))
	before := state(t, c)
	done, err := abandon.Node(t.Context(), "us-east-1a", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName})
	if err != nil || len(done) > 0 {
		t.Errorf("%q, %v", describe(done), err)
	}
	if after := state(t, c); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// TestNode_endsNothingOfANodeThatComesBack while the command runs.
func TestNode_endsNothingOfANodeThatComesBack(t *testing.T) {
	c := lost(t)
	before := state(t, c)
	var once sync.Once
	c.React("list", "persistentvolumes", func(apiserver.Request) error {
		once.Do(func() {
			_, err := c.Core.CoreV1().Nodes().Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
		})
		return nil
	})
	_, err := abandon.Node(t.Context(), "n1", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName})
	if err == nil || !strings.Contains(err.Error(), `node "n1" exists`) {
		t.Errorf("%v", err)
	}
	if after := state(t, c); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// TestNode_withALongName: the label holds a hash of the name, and no node has that name.
func TestNode_withALongName(t *testing.T) {
	long := strings.Repeat("n", 64)
	c := lost(t, newContent("long", claim.NodeLabelValue(long), "h-gone", true))
	options := abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName}
	done, err := abandon.Node(t.Context(), claim.NodeLabelValue(long), options)
	if err == nil || len(done) > 0 {
		t.Errorf("by its hash: %q, %v", describe(done), err)
	}
	done, err = abandon.Node(t.Context(), long, options)
	if want := []string{"VolumeSnapshotContent long true "}; err != nil || !slices.Equal(describe(done), want) {
		t.Errorf("%q, %v", describe(done), err)
	}
}

// TestNode_asksTheTopologyOfSnapshots: the PersistentVolume of one is gone, and another one can
// be restored elsewhere.
func TestNode_asksTheTopologyOfSnapshots(t *testing.T) {
	at := func(content *snapshotv1.VolumeSnapshotContent, key, value string) *snapshotv1.VolumeSnapshotContent {
		affinity, err := claim.SnapshotAffinity([]*csi.Topology{{Segments: map[string]string{key: value}}})
		if err != nil {
			t.Fatal(err)
		}
		content.Annotations = map[string]string{claim.NodeAffinityAnnotation: affinity}
		return content
	}
	c := apiserver.New(t, csidriver.New(driverName), newVolume("v", "n1", corev1.VolumeBound),
		at(newContent("here", "", "h-gone", true), "topology.example/node", "n1"),
		at(newContent("there", "", "h-v", true), "topology.example/node", "n2"),
		at(newContent("zonal", "n1", "h-v", true), "zone", "a"))
	done, err := abandon.Node(t.Context(), "n1", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName})
	if err != nil {
		t.Fatal(err)
	}
	done = slices.DeleteFunc(done, func(e abandon.Entry) bool { return e.Kind != "VolumeSnapshotContent" })
	if got := describe(done); !slices.Equal(got, []string{"VolumeSnapshotContent here true "}) {
		t.Errorf("%q", got)
	}
}

// TestNode_releasesAClaimThatWasBeingCloned, so that the user can delete it.
func TestNode_releasesAClaimThatWasBeingCloned(t *testing.T) {
	cloned := func(name string) *corev1.PersistentVolumeClaim {
		pvc := newClaim(name, "n1")
		pvc.Spec.VolumeName, pvc.Finalizers = name, []string{lifecycle.CloneFinalizer}
		return pvc
	}
	c := lost(t, cloned("bound"), cloned("retained"), cloned("alive"))
	c.Delete(cloned("bound"))
	c.Delete(cloned("alive"))
	if _, err := abandon.Node(t.Context(), "n1", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName}); err != nil {
		t.Fatal(err)
	}
	claims, err := c.Core.CoreV1().PersistentVolumeClaims("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, pvc := range claims.Items {
		kept = append(kept, fmt.Sprintf("%s %d", pvc.Name, len(pvc.Finalizers)))
	}
	if want := []string{"alive 1", "other 0", "pending 0", "retained 1"}; !slices.Equal(kept, want) {
		t.Errorf("%q remain, want %q", kept, want)
	}
}

// TestNode_canBeRepeatedAfterAnyFailure: every request fails once.
func TestNode_canBeRepeatedAfterAnyFailure(t *testing.T) {
	c := lost(t)
	options := abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName}
	var mu sync.Mutex
	seen := map[string]bool{}
	c.React("*", "*", func(q apiserver.Request) error {
		mu.Lock()
		defer mu.Unlock()
		key := q.Verb + " " + q.Resource + " " + q.Name
		if q.Process == "" || seen[key] {
			return nil
		}
		seen[key] = true
		return apierrors.NewInternalError(fmt.Errorf("for a test"))
	})
	for tries := 0; ; tries++ {
		_, err := abandon.Node(context.Background(), "n1", options)
		if err == nil {
			break
		}
		if tries > 40 {
			t.Fatal(err)
		}
	}
	remains := []string{"alive 1", "bound 1", "foreign 1", "retained 0", "elsewhere", "kept", "i-n2", "pending on ", "other on n2"}
	if after := state(t, c); !slices.Equal(after, remains) {
		t.Errorf("%q remain, want %q", after, remains)
	}
}

// The controllers of Kubernetes change a volume as soon as it is deleted, and remove their
// own finalizer.
func TestNode_followsObjectsThatChangeMeanwhile(t *testing.T) {
	c := lost(t)
	options := abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName}
	var mu sync.Mutex
	seen := map[string]bool{}
	c.React("*", "*", func(q apiserver.Request) error {
		mu.Lock()
		defer mu.Unlock()
		key := q.Verb + " " + q.Resource + " " + q.Name
		if q.Process == "" || seen[key] || q.Verb != "patch" && q.Verb != "delete" {
			return nil
		}
		seen[key] = true
		if q.Verb == "delete" {
			return apierrors.NewConflict(schema.GroupResource{Resource: q.Resource}, q.Name, errors.New("it has changed"))
		}
		return apierrors.NewInvalid(schema.GroupKind{Kind: q.Resource}, q.Name, nil) // a test operation that fails
	})
	entries, err := abandon.Node(context.Background(), "n1", options)
	if err != nil {
		t.Fatal(err)
	}
	remains := []string{"alive 1", "bound 1", "foreign 1", "retained 0", "elsewhere", "kept", "i-n2", "pending on ", "other on n2"}
	if after := state(t, c); !slices.Equal(after, remains) {
		t.Errorf("%q remain, want %q", after, remains)
	}
	reported := map[string]bool{}
	for _, e := range entries {
		if reported[e.Kind+e.Name] {
			t.Errorf("%s %s is reported twice", e.Kind, e.Name)
		}
		reported[e.Kind+e.Name] = true
	}
	if len(seen) == 0 || len(reported) == 0 {
		t.Errorf("%d writes were refused, %d objects reported", len(seen), len(reported))
	}
}

func TestNode_withoutTheCRDsOfSnapshots(t *testing.T) {
	c := lost(t)
	c.Unserve(snapshotv1.SchemeGroupVersion.Group, true)
	done, err := abandon.Node(t.Context(), "n1", abandon.Options{Clients: c.NewEnv().Clients, Driver: driverName})
	if err != nil || len(done) != 5 {
		t.Errorf("%q, %v", describe(done), err)
	}
}
