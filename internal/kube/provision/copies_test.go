package provision

import (
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// closed is a namespace that no ReferenceGrant opens.
const closed = "closed"

// copies are the claims of the model that are restored from a snapshot. Each snapshot can be
// restored on one node only. Some are in another namespace, whose ReferenceGrant comes and
// goes, and some in one that has none.
type copies struct {
	granted bool
	nodes   map[string]string                        // of the snapshot, by claim
	refused map[string]*corev1.PersistentVolumeClaim // those without a grant, by name
}

func newCopies() *copies {
	return &copies{nodes: map[string]string{}, refused: map[string]*corev1.PersistentVolumeClaim{}}
}

// addSnapshots adds a snapshot of each node to each namespace.
func (c *chaos) addSnapshots() {
	for _, namespace := range []string{"ns", far, closed} {
		for _, node := range []string{"n1", "n2"} {
			id := namespace + "-" + node
			snapshot, content := newSnapshot("s-" + node)
			text, err := claim.SnapshotAffinity(in(csidriver.TopologyKey, node))
			if err != nil {
				c.t.Fatal(err)
			}
			volume := "volume-of-" + id + "@" + node
			snapshot.Namespace, snapshot.UID = namespace, types.UID("uid-s-"+id)
			content.Name, content.Annotations = "content-"+id, map[string]string{claim.NodeAffinityAnnotation: text}
			content.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: namespace, Name: snapshot.Name, UID: snapshot.UID}
			content.Spec.Source.VolumeHandle, content.Status.SnapshotHandle = &volume, ptr(c.Driver.AddSnapshot(id, volume))
			snapshot.Status.BoundVolumeSnapshotContentName = &content.Name
			c.Add(snapshot, content)
		}
	}
}

// restore lets some claims be restored from a snapshot. It reports whether the claim may have
// a volume.
func (c *chaos) restore(pvc *corev1.PersistentVolumeClaim) (allowed bool) {
	node, group := c.node(), claim.SnapshotGroup
	source := "s-" + node
	switch c.choose.IntN(5) {
	case 0, 1:
		return true
	case 2:
		restoreOf(source)(pvc)
	case 3:
		foreign(&group, "VolumeSnapshot", source)(pvc)
	case 4:
		foreign(&group, "VolumeSnapshot", source)(pvc)
		pvc.Spec.DataSourceRef.Namespace = ptr(closed)
		c.copies.refused[pvc.Name] = pvc
		return false
	}
	c.copies.nodes[pvc.Name] = node
	return true
}

// grant creates or deletes the ReferenceGrant.
func (c *chaos) grant(granted bool) {
	if c.copies == nil || c.copies.granted == granted {
		return
	}
	c.copies.granted = granted
	object := newGrant(far, "VolumeSnapshot", claim.SnapshotGroup)
	if granted {
		c.Add(object)
	} else {
		c.Delete(object)
	}
}

// refuseCopies fails the test for a call for a source that no grant allows.
func (c *chaos) refuseCopies(request any) {
	create, ok := request.(*csi.CreateVolumeRequest)
	if id := create.GetVolumeContentSource().GetSnapshot().GetSnapshotId(); ok && strings.HasPrefix(id, "id-"+closed) {
		c.t.Errorf("volume %s is requested from snapshot %s, which no ReferenceGrant allows", create.GetName(), id)
	}
}

// copied expects that each copy is on the node of its snapshot, and that no node is selected
// for a claim whose source no grant allows.
func (c *chaos) copied(volumes []corev1.PersistentVolume) error {
	if c.copies == nil {
		return nil
	}
	for i := range volumes {
		pv := &volumes[i]
		node, restored := c.copies.nodes[pv.Spec.ClaimRef.Name]
		affinity := pv.Spec.NodeAffinity
		if restored && (affinity == nil || !claim.FitsNode(affinity, node, map[string]string{csidriver.TopologyKey: node})) {
			return fmt.Errorf("PersistentVolume %s of a snapshot of node %s has the affinity %v", pv.Name, node, affinity)
		}
	}
	for name := range c.copies.refused {
		pvc, err := c.Core.CoreV1().PersistentVolumeClaims("ns").Get(c.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if selectedNode(pvc) != "" || pvc.Spec.VolumeName != "" {
			return fmt.Errorf("claim %s has node %q and volume %q, and no ReferenceGrant allows its source",
				name, selectedNode(pvc), pvc.Spec.VolumeName)
		}
	}
	return nil
}
