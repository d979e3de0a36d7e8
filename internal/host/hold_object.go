package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/binds"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

const (
	// holdAnnotation has the request, so that an equal request is recognized even if
	// a policy changed the pod.
	holdAnnotation = "holdfast.dev/hold"
	// leaseAnnotation names the process or unit with which the hold ends.
	leaseAnnotation = "holdfast.dev/lease"
	// holderContainer is the container of a hold's pod. It is never run.
	holderContainer = "holder"
)

// holdRecord is the value of holdAnnotation.
type holdRecord struct {
	Volumes []api.HoldVolume `json:"volumes,omitempty"`
	FSGroup *int64           `json:"fsGroup,omitempty"`
	Spec    *corev1.PodSpec  `json:"spec,omitempty"`
}

// holdPod makes the object of a hold.
func (h *Host) holdPod(request api.HoldRequest) (*corev1.Pod, error) {
	if request.Namespace == "" {
		request.Namespace = manifest.DefaultNamespace
	}
	pod, record := request.Pod, holdRecord{}
	if pod != nil {
		pod = pod.DeepCopy()
		record.Spec = &pod.Spec
		pod.Status = corev1.PodStatus{}
		pod.UID, pod.ResourceVersion = "", ""
	} else {
		record = holdRecord{Volumes: request.Volumes, FSGroup: request.FSGroup}
		var err error
		if pod, err = h.podOfVolumes(request); err != nil {
			return nil, err
		}
	}
	if request.Name == "" {
		return nil, errors.New("a hold needs a name")
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Namespace, pod.Name = request.Namespace, request.Name
	asked, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	holder := request.Holder
	if holder == "" {
		holder = "unknown"
	}
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[pods.HolderAnnotation] = holder
	pod.Annotations[holdAnnotation] = string(asked)
	return pod, h.addLease(pod, request)
}

// podOfVolumes is a pod that uses the volumes.
func (h *Host) podOfVolumes(request api.HoldRequest) (*corev1.Pod, error) {
	if len(request.Volumes) == 0 {
		return nil, errors.New("a hold needs a volume")
	}
	container := corev1.Container{Name: holderContainer}
	pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: request.FSGroup}}}
	for i, volume := range request.Volumes {
		if (volume.Claim == "") == (volume.CSI == nil) {
			return nil, fmt.Errorf("volumes[%d]: either claim or csi", i)
		}
		source := corev1.VolumeSource{CSI: volume.CSI.DeepCopy()}
		if source.CSI != nil && volume.ReadOnly {
			source.CSI.ReadOnly = &volume.ReadOnly
		}
		block, err := h.isBlock(store.Key(request.Namespace, volume.Claim))
		if err != nil {
			return nil, err
		}
		if volume.Claim != "" {
			source.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.Claim,
				ReadOnly: volume.ReadOnly}
		}
		if block && volume.Bind != "" {
			return nil, fmt.Errorf("volumes[%d]: claim %q is a block device (volumeMode: Block), which cannot be bound at the directory %s", i, volume.Claim, volume.Bind)
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume.Name, VolumeSource: source})
		path := "/volumes/" + volume.Name
		if block {
			container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: volume.Name, DevicePath: path})
			continue
		}
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: path,
			ReadOnly: volume.ReadOnly})
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod, nil
}

func (h *Host) isBlock(key string) (block bool, err error) {
	err = h.store.View(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		block = pvc != nil && claim.IsBlock(pvc.Spec.VolumeMode)
		return err
	})
	return block, err
}

// checkHold rejects a hold that would wait for ever, together with its caller. A
// pod, in contrast, may wait for a claim that is applied later.
func (h *Host) checkHold(pod *corev1.Pod) error {
	err := h.store.View(func(tx *store.Tx) error {
		var problems []error
		for _, volume := range pod.Spec.Volumes {
			source := volume.PersistentVolumeClaim
			if source == nil {
				continue
			}
			key := store.Key(pod.Namespace, source.ClaimName)
			pvc, err := tx.Claims().Get(key)
			switch {
			case err != nil:
				return err
			case pvc == nil:
				problems = append(problems, fmt.Errorf("claim %s does not exist: make it with 'holdfast apply'", key))
			case pvc.DeletionTimestamp != nil:
				problems = append(problems, fmt.Errorf("claim %s is being deleted", key))
			}
		}
		return errors.Join(problems...)
	})
	if err != nil {
		return refuse(api.ErrInvalid, err)
	}
	for _, bind := range holdOf(pod).Volumes {
		if bind.Bind == "" {
			continue
		}
		if within(bind.Bind, h.paths.Root) {
			return refuse(api.ErrInvalid, fmt.Errorf("bind %s: it is in the host's own directory", bind.Bind))
		}
		if err := binds.CheckTarget(bind.Bind); err != nil {
			return refuse(api.ErrInvalid, err)
		}
	}
	return nil
}

func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, directory+"/")
}

// holdOf is the request with which the hold was made.
func holdOf(pod *corev1.Pod) (record holdRecord) {
	_ = json.Unmarshal([]byte(pod.Annotations[holdAnnotation]),
		&record) // a user who changed the annotation changed the request
	return record
}

// sameHold returns nil if a hold that exists is the desired one; the error says how
// it differs.
func sameHold(there, desired *corev1.Pod) error {
	key := store.KeyOf(desired)
	conflict := func(format string, arguments ...any) error {
		return refuse(api.ErrConflict, fmt.Errorf(format, arguments...))
	}
	holder := there.Annotations[pods.HolderAnnotation]
	switch {
	case holder == "":
		return conflict("%s is a pod that this host runs: choose another name", key)
	case !sameLease(there, desired):
		return conflict("hold %s is there already, for %s: choose another name, or end it with 'holdfast release %s'", key,
			holder, there.Name)
	case there.Annotations[holdAnnotation] == desired.Annotations[holdAnnotation]:
		return nil
	}
	return conflict("hold %s is there already, for %s, and is another one: %s",
		key, holder, holdDifference(holdOf(there), holdOf(desired)))
}

func holdDifference(has, wants holdRecord) string {
	texts := func(record holdRecord) (all []string) {
		for _, volume := range record.Volumes {
			text, _ := json.Marshal(volume)
			all = append(all, string(text))
		}
		return all
	}
	for _, text := range texts(has) {
		if !slices.Contains(texts(wants), text) {
			return "it has the volume " + text
		}
	}
	for _, text := range texts(wants) {
		if !slices.Contains(texts(has), text) {
			return "it does not have the volume " + text
		}
	}
	return "fsGroup, the pod or the order of the volumes differs"
}

// makeBinds binds a hold's volumes at the requested directories, when they are
// mounted and before the pod counts as running.
func (h *Host) makeBinds(_ context.Context, pod *corev1.Pod, mounted map[string]volumes.Mounted) error {
	var desired []binds.Bind
	for _, volume := range holdOf(pod).Volumes {
		mount, ok := mounted[volume.Name]
		if volume.Bind == "" || !ok {
			continue
		}
		if mount.Block {
			return fmt.Errorf("bind %s: volume %q is a block device", volume.Bind, volume.Name)
		}
		desired = append(desired, binds.Bind{Source: mount.Path, Target: volume.Bind, ReadOnly: mount.ReadOnly})
	}
	if len(desired) == 0 {
		return nil
	}
	return binds.Make(h.bindRecords(pod), h.bootID, desired)
}

// removeBinds unmounts the binds before the volumes are unmounted.
func (h *Host) removeBinds(_ context.Context, pod *corev1.Pod) error {
	return binds.Remove(h.bindRecords(pod), h.bootID)
}

// bindRecords is the pod's directory, which has the pod's record, too.
func (h *Host) bindRecords(pod *corev1.Pod) string {
	return filepath.Dir(h.paths.PodRecord(pod.UID))
}
