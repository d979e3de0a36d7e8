package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/why"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// siege is for how long the storage refuses every change before `why` is asked: longer than the
// longest wait between two attempts.
func (w *World) siege() time.Duration {
	if w.shape.short {
		return 6 * shortRetries().Max
	}
	return work.DefaultRetryMax + time.Minute
}

// shortRetries are the waits of processes that try often.
func shortRetries() work.Retry {
	return work.Retry{Start: 100 * time.Millisecond, Max: 10 * time.Second}
}

// besiege lets the storage refuse every change for a while, without other faults, and asks
// what waits for it.
func (w *World) besiege() error {
	w.calm()
	w.storage.readOnly = true
	w.lab.Note("the storage is read-only")
	ends := w.lab.Elapsed() + w.siege()
	err := w.lab.Converge(lab.Plan{Check: w.check}, func() error {
		if w.lab.Elapsed() < ends {
			return errors.New("the siege lasts")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.explained()
}

// explained asks `why` about everything that is stuck.
func (w *World) explained() error {
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		if pvc.Spec.VolumeName == "" && pvc.DeletionTimestamp == nil && !w.volumeGoes(pvc) && (w.shape.immediate || w.hasPod(pvc)) {
			if err := w.ask(why.Subject{Kind: "pvc", Namespace: pvc.Namespace, Name: pvc.Name}); err != nil {
				return err
			}
		}
	}
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		if pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			if err := w.ask(why.Subject{Kind: "pv", Name: pv.Name}); err != nil {
				return err
			}
		}
	}
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, pod.Namespace, claimOf(pod))
		if !ok || pod.Spec.NodeName == "" || !w.shape.attach || pvc.Spec.VolumeName == "" || w.attachedTo(pvc.Spec.VolumeName, pod.Spec.NodeName) {
			continue
		}
		if err := w.ask(why.Subject{Kind: "pod", Namespace: pod.Namespace, Name: pod.Name}); err != nil {
			return err
		}
	}
	return nil
}

// explainPods asks `why` about the pods that wait for an attachment.
func (w *World) explainPods(va *storagev1.VolumeAttachment) error {
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, pod.Namespace, claimOf(pod))
		if ok && pod.DeletionTimestamp == nil && pod.Spec.NodeName == va.Spec.NodeName && pvc.Spec.VolumeName == volumeOf(va) {
			if err := w.ask(why.Subject{Kind: "pod", Namespace: pod.Namespace, Name: pod.Name}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *World) attachedTo(volume, node string) bool {
	for _, va := range all[*storagev1.VolumeAttachment](w.mirror, attachments) {
		if volumeOf(va) == volume && va.Spec.NodeName == node {
			return va.Status.Attached
		}
	}
	return false
}

func (w *World) ask(subject why.Subject) error {
	report, err := why.Ask(context.Background(), reader{w}, subject)
	if err != nil {
		return fmt.Errorf("why %s: %w", subject, err)
	}
	if len(report.Findings) == 0 {
		return fmt.Errorf("why does not explain %s: %q", subject, report.Answer())
	}
	if text, _ := json.Marshal(report); strings.Contains(string(text), marker) {
		return fmt.Errorf("why %s has a secret: %s", subject, text)
	}
	return nil
}

// reader is a why.Reader of the API server's objects.
type reader struct{ w *World }

func (r reader) Get(_ context.Context, kind why.Kind, namespace, name string) ([]byte, error) {
	for _, o := range r.objects(kind) {
		meta, _ := o["metadata"].(map[string]any)
		if meta["name"] == name && (namespace == "" || meta["namespace"] == namespace) {
			return json.Marshal(o)
		}
	}
	return nil, why.ErrNotFound
}

func (r reader) List(_ context.Context, kind why.Kind, namespace, _ string) (found []json.RawMessage, err error) {
	for _, o := range r.objects(kind) {
		meta, _ := o["metadata"].(map[string]any)
		if namespace != "" && meta["namespace"] != namespace {
			continue
		}
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, nil
}

func (r reader) objects(kind why.Kind) []map[string]any {
	parts := strings.Split(string(kind), "/")
	return r.w.server.Objects(parts[0], parts[2])
}
