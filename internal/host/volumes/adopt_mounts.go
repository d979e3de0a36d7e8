package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// mountTable has the mount points below the host's root directory.
type mountTable map[string]bool

func (t mountTable) has(path string) bool { return t[path] }

// unknownMounts returns the mount points in directories where only this host mounts
// and that no record names. Mounts below a recorded mount point belong to its
// volume, and mounts elsewhere below plugins belong to the drivers.
func (m *Manager) unknownMounts(a *adoption) []string {
	known := map[string]bool{}
	for _, use := range a.uses {
		known[use.StagingPath] = true
		for path := range use.Targets {
			known[path] = true
		}
	}
	root := m.options.Paths.Root
	exclusive := []string{filepath.Join(root, "pods"), filepath.Join(root, "plugins", "kubernetes.io", "csi")}
	var unknown []string
	for path := range a.mounts {
		if !within(exclusive, path) || belowKnown(known, path, root) {
			continue
		}
		unknown = append(unknown, path)
	}
	slices.Sort(unknown)
	return unknown
}

func within(directories []string, path string) bool {
	return slices.ContainsFunc(directories, func(directory string) bool {
		return strings.HasPrefix(path, directory+string(filepath.Separator))
	})
}

func belowKnown(known map[string]bool, path, root string) bool {
	for ; len(path) > len(root); path = filepath.Dir(path) {
		if known[path] {
			return true
		}
	}
	return false
}

// adoptMounts records mounts that no record names as uncertain, if the store has the pod
// or the PersistentVolume that they belong to.
func (m *Manager) adoptMounts(a *adoption) error {
	unknown := m.unknownMounts(a)
	if len(unknown) == 0 {
		return nil
	}
	var volumes []*corev1.PersistentVolume
	nodes := map[string]string{}
	err := m.view(func(tx *store.Tx) (err error) {
		if volumes, err = tx.Volumes().All(); err != nil {
			return err
		}
		attachments, err := tx.Attachments().All()
		for _, attachment := range attachments {
			nodes[attachment.Name] = attachment.Annotations[nodeIDAnnotation]
		}
		return err
	})
	if err != nil {
		return err
	}
	ownerOf := m.mountOwners(a, volumes, nodes)
	for _, path := range unknown {
		uid, isTarget := m.podOf(path)
		use := ownerOf(path, uid)
		if use == nil {
			a.report("something is mounted in the host's directories that no record knows; unmount it if it is not needed",
				path, nil, store.Target{})
			continue
		}
		a.enter(use, path, uid, isTarget)
	}
	return nil
}

// enter records a mount whose record was lost. All its steps are uncertain.
func (a *adoption) enter(found *store.VolumeUse, path string, uid types.UID, isTarget bool) {
	use := a.uses[found.Name]
	if use == nil {
		use = found
		use.BootID = a.boot
		a.uses[use.Name] = use
	}
	target := store.Target{Phase: store.PhaseDoing, PodUID: uid, VolumeName: use.SpecName}
	if isTarget {
		if pod := a.pods[uid]; pod != nil {
			target.Pod = store.Key(pod.Namespace, pod.Name)
		}
		if use.Targets == nil {
			use.Targets = map[string]store.Target{}
		}
		use.Targets[path] = target
	} else {
		use.Stage, use.StagingPath, use.StageMounted = store.PhaseDoing, path, true
	}
	a.changed[use.Name] = true
	a.report("it is mounted, but its record was lost; it was recorded again", path, use, target)
}

// mountOwners returns a function that finds the volume that a path belongs to: by
// the name of a PersistentVolume, the hash of a handle, or the inline volume of a
// pod. nodes maps the names of VolumeAttachments to the drivers' node IDs.
func (m *Manager) mountOwners(
	a *adoption, volumes []*corev1.PersistentVolume, nodes map[string]string,
) func(path string, uid types.UID) *store.VolumeUse {
	staged := map[string]*corev1.PersistentVolume{}
	for _, volume := range volumes {
		if source := volume.Spec.CSI; source != nil {
			staged[m.options.Paths.Staging(source.Driver, source.VolumeHandle)] = volume
			staged[m.options.Paths.BlockStaging(volume.Name)] = volume
		}
	}
	return func(path string, uid types.UID) *store.VolumeUse {
		if uid == "" {
			if volume := staged[path]; volume != nil {
				return m.lostUse(volume, nodes)
			}
			return nil
		}
		for _, volume := range volumes {
			if volume.Spec.CSI != nil && m.target(uid, newUse(volume)) == path {
				return m.lostUse(volume, nodes)
			}
		}
		pod := a.pods[uid]
		if pod == nil {
			return nil
		}
		for i := range pod.Spec.Volumes {
			if volume := &pod.Spec.Volumes[i]; volume.CSI != nil && m.options.Paths.Publish(uid, volume.Name) == path {
				return inlineUse(pod, volume)
			}
		}
		return nil
	}
}

// lostUse is the use of a volume whose record was lost. It may have been staged and
// attached, unless the driver has no such steps.
func (m *Manager) lostUse(volume *corev1.PersistentVolume, nodes map[string]string) *store.VolumeUse {
	use := newUse(volume)
	use.Label = "volume " + volume.Name
	if ref := volume.Spec.ClaimRef; ref != nil {
		use.Label = claimLabel(store.Key(ref.Namespace, ref.Name))
	}
	use.Stage, use.StagingPath = store.PhaseDoing, m.staging(use)
	if object, err := m.driverOf(use.Driver); err == nil && !claim.NeedsAttach(object) {
		return use
	}
	use.Attach, use.AttachSecret = store.PhaseDoing, volume.Spec.CSI.ControllerPublishSecretRef
	use.Attachment = claim.AttachmentName(use.Handle, use.Driver, m.nodeName())
	use.NodeID = nodes[use.Attachment]
	return use
}

// podOf returns the UID of the pod that a target path is for: pods/UID/… or …/publish/NAME/UID.
func (m *Manager) podOf(path string) (types.UID, bool) {
	const separator = string(filepath.Separator)
	if below, ok := strings.CutPrefix(path, filepath.Join(m.options.Paths.Root, "pods")+separator); ok {
		uid, _, _ := strings.Cut(below, separator)
		return types.UID(uid), true
	}
	if strings.HasPrefix(path, filepath.Dir(filepath.Dir(m.options.Paths.BlockPublish("x", "y")))+separator) {
		return types.UID(filepath.Base(path)), true
	}
	return "", false
}

// removeEmptyPodDirectories removes the directories of unknown pods that contain no
// files. It reports the others: they may contain data.
func (m *Manager) removeEmptyPodDirectories(a *adoption) error {
	directory := filepath.Join(m.options.Paths.Root, "pods")
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the directories of pods: %w", err)
	}
	needed := map[types.UID]bool{}
	for _, use := range a.uses {
		for _, target := range use.Targets {
			needed[target.PodUID] = true
		}
	}
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		if a.pods[uid] != nil || needed[uid] || !entry.IsDir() {
			continue
		}
		path := filepath.Join(directory, entry.Name())
		if err := removeEmptyTree(path, a.mounts); err != nil {
			m.logger.Warn("the directory of a pod that does not exist any more is not empty; it is kept",
				"path", path, "error", err)
		}
	}
	return nil
}

// removeEmptyTree removes a tree of directories that contains no files. It
// returns an error for a mount point instead of reading the directory.
func removeEmptyTree(path string, mounts mountTable) error {
	if mounts.has(path) {
		return fmt.Errorf("something is mounted at %s", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			return fmt.Errorf("there is a file %s", filepath.Join(path, entry.Name()))
		}
		if err := removeEmptyTree(filepath.Join(path, entry.Name()), mounts); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

func inlineUse(pod *corev1.Pod, volume *corev1.Volume) *store.VolumeUse {
	source := volume.CSI
	return &store.VolumeUse{
		Name: claim.UniqueInlineName(pod.UID, volume.Name), SpecName: volume.Name, Label: inlineLabel(volume.Name),
		Driver: source.Driver, Handle: claim.InlineHandle(pod.UID, volume.Name), Inline: true,
		FSType: fsType(source.FSType), Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Attributes: source.VolumeAttributes,
	}
}
