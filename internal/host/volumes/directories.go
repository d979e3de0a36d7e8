package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// directoryMode is the mode of the kubelet's directories around volumes.
const directoryMode = 0o750

func makeDirectory(path string) error {
	if err := os.MkdirAll(path, directoryMode); err != nil {
		return fmt.Errorf("%w: make the directory: %w", errLocal, err)
	}
	return nil
}

// makeParent makes the parent of a target path. The driver makes the target path itself
// (CSI spec 1.13, NodePublishVolumeRequest).
func makeParent(target string) error { return makeDirectory(filepath.Dir(target)) }

// removeTarget removes a target path that the driver did not remove, and the directories
// above it that are empty now. It never removes recursively: files may be data.
func (m *Manager) removeTarget(target string) error {
	if err := removeEmpty(target); err != nil {
		return fmt.Errorf("the volume is unpublished, but its target path is not free: %w", err)
	}
	return m.removeUp(filepath.Dir(target))
}

func (m *Manager) removeStaging(path string) error {
	if err := removeEmpty(path); err != nil {
		return fmt.Errorf("the volume is unstaged, but its staging path is not free: %w", err)
	}
	return m.removeUp(filepath.Dir(path))
}

// removeUp removes empty directories from path upwards, as far as the
// directories that always exist.
func (m *Manager) removeUp(path string) error {
	root := m.options.Paths.Root
	stops := []string{root, filepath.Join(root, "pods"), filepath.Join(root, "plugins")}
	for ; strings.HasPrefix(path, root+string(filepath.Separator)); path = filepath.Dir(path) {
		for _, stop := range stops {
			if path == stop {
				return nil
			}
		}
		// It stays if it contains a directory of another volume, which may also be
		// created at this moment.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return nil
}

// removeEmpty removes an empty file or directory. It returns an error if that is not
// empty or is a mount point, but none if it does not exist.
func removeEmpty(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() && info.Size() > 0:
		return fmt.Errorf("%s is a file with content", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removePodDirectory removes a pod's directory after its volumes were unmounted. It
// removes recursively only the emptyDir volumes, and not if another program has mounted
// a filesystem there.
func (m *Manager) removePodDirectory(pod types.UID) error {
	directory := m.options.Paths.Pod(pod)
	root, err := os.OpenRoot(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the pod's directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	empty, err := filepath.Rel(directory, filepath.Dir(m.options.Paths.EmptyDir(pod, "x")))
	if err != nil {
		return err
	}
	if err := m.nothingMounted(filepath.Join(directory, empty)); err != nil {
		return fmt.Errorf("remove the emptyDir volumes: %w", err)
	}
	if err := root.RemoveAll(empty); err != nil {
		return fmt.Errorf("remove the emptyDir volumes: %w", err)
	}
	containers, err := fs.ReadDir(root.FS(), "containers")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the containers' directories: %w", err)
	}
	for _, container := range containers {
		if err := root.Remove(filepath.Join("containers", container.Name())); err != nil {
			return fmt.Errorf("remove a container's directory: %w", err)
		}
	}
	if err := m.removeUp(filepath.Join(directory, "containers")); err != nil {
		return err
	}
	return m.removeUp(filepath.Join(directory, filepath.Dir(empty)))
}
