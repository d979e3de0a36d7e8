package kube

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// manager is one of Kubernetes' controllers. It does one piece of work after the other, each
// a step that has its effect at once.
type manager struct {
	world   *World
	process *lab.Process
	changed chan struct{}
	pieces  func() []piece
}

// piece is what a manager could do now.
type piece struct {
	what string
	do   func()
}

func (w *World) startManagers() {
	for name, pieces := range map[string]func() []piece{
		"pv-controller": w.binding, "scheduler": w.scheduling, "attach-detach": w.attaching, "snapshot-controller": w.snapshotting,
		"node": w.expanding,
	} {
		w.managers = append(w.managers, &manager{world: w, process: w.lab.Process(name), changed: make(chan struct{}, 1), pieces: pieces})
	}
	slices.SortFunc(w.managers, func(a, b *manager) int { return compare(a.process.Name(), b.process.Name()) })
	for _, m := range w.managers {
		w.running.Go(func() { m.run(w.ctx) })
	}
}

func compare(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func (m *manager) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *manager) run(ctx context.Context) {
	for {
		if len(m.pieces()) == 0 {
			select {
			case <-m.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		if _, err := m.process.Pass(ctx, lab.Step{Kind: "works"}); err != nil {
			return
		}
		if now := m.pieces(); len(now) > 0 {
			chosen := lab.Pick(m.world.lab, now...)
			m.world.lab.Note("%s: %s", m.process.Name(), chosen.what)
			chosen.do()
		}
	}
}

// Finalizers of Kubernetes.
const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
)

// binding is the PersistentVolume controller, with the protection of volumes and claims.
func (w *World) binding() (pieces []piece) {
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		pieces = append(pieces, w.bindClaim(pvc)...)
	}
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		pieces = append(pieces, w.bindVolume(pv)...)
	}
	return pieces
}

func (w *World) bindClaim(pvc *corev1.PersistentVolumeClaim) []piece {
	if pvc.DeletionTimestamp != nil {
		if !contains(pvc.Finalizers, claimProtection) || w.used(pvc) {
			return nil
		}
		return []piece{{"release claim " + pvc.Name, func() {
			w.change(pvc, func(o object) { o.SetFinalizers(without(o.GetFinalizers(), claimProtection)) })
		}}}
	}
	if pvc.Spec.VolumeName != "" {
		pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName)
		switch {
		case !ok && pvc.Status.Phase == corev1.ClaimBound:
			return []piece{{"claim " + pvc.Name + " is lost", func() {
				w.change(pvc, func(o object) { asClaim(o).Status.Phase = corev1.ClaimLost })
			}}}
		case ok && pvc.Status.Phase == corev1.ClaimPending && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == pvc.UID && pv.Status.Phase == corev1.VolumeBound:
			return []piece{{"claim " + pvc.Name + " is bound", func() {
				w.change(pvc, func(o object) {
					bound := asClaim(o)
					bound.Status.Phase, bound.Status.Capacity = corev1.ClaimBound, pv.Spec.Capacity
					bound.Status.AccessModes = pv.Spec.AccessModes
				})
			}}}
		}
		return nil
	}
	if pv := w.volumeFor(pvc); pv != nil {
		return []piece{{"bind claim " + pvc.Name, func() {
			w.change(pvc, func(o object) { asClaim(o).Spec.VolumeName = pv.Name })
		}}}
	}
	class, ok := get[*storagev1.StorageClass](w.mirror, classes, "", claim.ClassName(pvc))
	if !ok || pvc.Annotations[claim.ProvisionerAnnotation] != "" || class.Provisioner != driverName || waits(class) && pvc.Annotations[claim.SelectedNodeAnnotation] == "" {
		return nil
	}
	return []piece{{"provision claim " + pvc.Name, func() {
		w.change(pvc, annotate(claim.ProvisionerAnnotation, driverName))
	}}}
}

// volumeFor returns the volume that is bound to an unbound claim.
func (w *World) volumeFor(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		ref := pv.Spec.ClaimRef
		if pv.DeletionTimestamp == nil && ref != nil && ref.Namespace == pvc.Namespace && ref.Name == pvc.Name && ref.UID == pvc.UID && pv.Status.Phase == corev1.VolumeBound {
			return pv
		}
	}
	return nil
}

func (w *World) bindVolume(pv *corev1.PersistentVolume) []piece {
	if pv.DeletionTimestamp == nil && !contains(pv.Finalizers, volumeProtection) {
		return []piece{{"protect volume " + pv.Name, func() {
			w.change(pv, func(o object) { o.SetFinalizers(append(slices.Clone(o.GetFinalizers()), volumeProtection)) })
		}}}
	}
	phase, ref := corev1.VolumeAvailable, pv.Spec.ClaimRef
	if ref != nil {
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, ref.Namespace, ref.Name)
		switch {
		case ref.UID == "" && !ok: // pre-bound by a user, to a claim that is to come
		case ref.UID == "":
			return []piece{{"bind volume " + pv.Name, func() {
				w.change(pv, func(o object) { asVolume(o).Spec.ClaimRef.UID = pvc.UID })
			}}}
		case ok && pvc.UID == ref.UID && (pvc.Spec.VolumeName == "" || pvc.Spec.VolumeName == pv.Name):
			phase = corev1.VolumeBound
		default:
			phase = corev1.VolumeReleased
		}
	}
	if pv.Status.Phase != phase && (pv.Status.Phase != corev1.VolumeFailed || phase != corev1.VolumeReleased) {
		return []piece{{"volume " + pv.Name + " is " + string(phase), func() {
			w.change(pv, func(o object) { asVolume(o).Status.Phase = phase })
		}}}
	}
	if pv.DeletionTimestamp != nil && contains(pv.Finalizers, volumeProtection) && phase != corev1.VolumeBound {
		return []piece{{"release volume " + pv.Name, func() {
			w.change(pv, func(o object) { o.SetFinalizers(without(o.GetFinalizers(), volumeProtection)) })
		}}}
	}
	return nil
}

// scheduling selects nodes.
func (w *World) scheduling() (pieces []piece) {
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, pod.Namespace, claimOf(pod))
		if !ok || pvc.DeletionTimestamp != nil {
			continue
		}
		switch {
		case pvc.Status.Phase == corev1.ClaimBound:
			pieces = append(pieces, piece{"schedule pod " + pod.Name, func() {
				nodes := w.nodes
				if pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName); ok {
					nodes = w.nodesOf(pv)
				}
				node := lab.Pick(w.lab, nodes...)
				w.change(pod, func(o object) { asPod(o).Spec.NodeName = node })
			}})
		case pvc.Spec.VolumeName == "" && pvc.Annotations[claim.SelectedNodeAnnotation] == "" && w.waitsForConsumer(pvc):
			pieces = append(pieces, piece{"select a node for claim " + pvc.Name, func() {
				node := lab.Pick(w.lab, w.nodes...)
				w.change(pvc, func(o object) {
					annotate(claim.SelectedNodeAnnotation, node)(o)
					w.label(o, claim.NodeLabel, node)
				})
			}})
		}
	}
	return pieces
}

func (w *World) waitsForConsumer(pvc *corev1.PersistentVolumeClaim) bool {
	class, ok := get[*storagev1.StorageClass](w.mirror, classes, "", claim.ClassName(pvc))
	return ok && waits(class)
}

func waits(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// expanding is the kubelet's part of an expansion, on whichever node it happens.
func (w *World) expanding() (pieces []piece) {
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName)
		if !ok || !claim.NodeResizeDue(pvc) || pvc.Status.Phase != corev1.ClaimBound {
			continue
		}
		pieces = append(pieces, piece{"grow the filesystem of claim " + pvc.Name, func() {
			w.change(pvc, func(o object) {
				grown := asClaim(o)
				grown.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *pv.Spec.Capacity.Storage()}
				delete(grown.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
				grown.Status.Conditions = nil
			})
		}})
	}
	return pieces
}

func annotate(key, value string) func(object) {
	return func(o object) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		o.SetAnnotations(annotations)
	}
}

func contains(list []string, one string) bool { return slices.Contains(list, one) }

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

func claimOf(pod *corev1.Pod) string {
	return pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
}

// used reports whether a pod uses a claim.
func (w *World) used(pvc *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(all[*corev1.Pod](w.mirror, pods), func(pod *corev1.Pod) bool {
		return pod.Namespace == pvc.Namespace && claimOf(pod) == pvc.Name && pod.Spec.NodeName != ""
	})
}

func asClaim(o object) *corev1.PersistentVolumeClaim {
	c, _ := o.(*corev1.PersistentVolumeClaim)
	return c
}
func asVolume(o object) *corev1.PersistentVolume { v, _ := o.(*corev1.PersistentVolume); return v }
func asPod(o object) *corev1.Pod                 { p, _ := o.(*corev1.Pod); return p }
