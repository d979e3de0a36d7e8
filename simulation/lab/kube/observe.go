package kube

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// observeAttachment checks that a VolumeAttachment says attached only once the volume is.
func (w *World) observeAttachment(c apiserver.Change) {
	if c.Resource != attachments || c.Event != "MODIFIED" {
		return
	}
	va, ok := get[*storagev1.VolumeAttachment](w.mirror, attachments, "", c.Name)
	if ok && len(va.Finalizers) > 0 {
		if pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", volumeOf(va)); ok {
			delete(w.storage.racing, pv.Spec.CSI.VolumeHandle+" id-"+va.Spec.NodeName)
		}
	}
	if c.Subresource != "status" {
		return
	}
	if !ok || !va.Status.Attached {
		return
	}
	pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", volumeOf(va))
	if !ok {
		return
	}
	handle, node := pv.Spec.CSI.VolumeHandle, "id-"+va.Spec.NodeName
	if p := w.process(c.Process); p != nil {
		p.owes.records(handle + " " + node) // also in one that is being deleted
	}
	if va.DeletionTimestamp == nil && !contains(w.driver.Attachments()[handle], node) {
		w.violate("the VolumeAttachment of %s to %s says attached, and the volume is not", handle, node)
	}
}

// tooOld is how long after the end of a claim no process begins a volume for it.
const tooOld = 5 * time.Minute

// gone has when claims ended, and which intents there were.
type gone struct {
	claims  map[types.UID]time.Time
	intents map[string]bool
	volumes map[string]bool // whose deletion was asked for
	kept    map[string]bool // PersistentVolumes that had policy Retain
}

// observeIntents checks that no volume is begun for a claim that has been gone for long.
func (w *World) observeIntents(c apiserver.Change) {
	switch {
	case c.Resource == claims && c.Event == "DELETED":
		meta, _ := c.Object["metadata"].(map[string]any)
		uid, _ := meta["uid"].(string)
		w.gone.claims[types.UID(uid)] = time.Now()
	case c.Resource == configMaps && c.Namespace == intents:
		stored, ok := get[*corev1.ConfigMap](w.mirror, configMaps, intents, c.Name)
		if !ok {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(stored.Data)) {
			if strings.HasSuffix(key, ".change") || w.gone.intents[key] {
				continue
			}
			w.gone.intents[key] = true
			p := w.process(c.Process)
			if ended, ok := w.gone.claims[types.UID(key)]; ok && time.Since(ended) > tooOld && p != nil && !p.paused.Load() {
				w.violate("%s begins a volume for claim %s, which was deleted %v ago", c.Process, key, time.Since(ended))
			}
		}
	}
}
