package windows

import (
	"context"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// SetMountPoint implements win32.Volumes. Links on the way to the directory are
// followed; the directory itself must be an empty one on an NTFS.
func (v volumeCalls) SetMountPoint(directory, name string) error {
	call := v.call("Volumes.SetMountPoint", name)
	call.Changes, call.Targets = true, append([]string{directory}, call.Targets...)
	return do(context.Background(), v.c, call, func() error {
		n, err := v.c.m.folder(directory)
		if err != nil {
			return err
		}
		if _, err := v.c.m.volume(name); err != nil {
			return err
		}
		switch {
		case !n.dir || n.parent == nil:
			return win32.ErrorDirectory
		case n.reparse != nil && n.tag == win32.ReparseTagMountPoint:
			return win32.ErrorDirNotEmpty
		}
		return v.c.m.setReparse(n, win32.NewMountPoint(name))
	})
}

// folder resolves a directory's path, which must have its last backslash; the
// directory may be a reparse point.
func (m *Machine) folder(directory string) (*node, error) {
	if !strings.HasSuffix(directory, `\`) {
		return nil, win32.ErrorInvalidName
	}
	at, err := m.resolve(directory, false)
	if err != nil {
		return nil, err
	}
	if at.share != nil {
		return nil, win32.ErrorInvalidParameter
	}
	return at.node, nil
}

// DeleteMountPoint implements win32.Volumes. It needs no volume that is there.
func (v volumeCalls) DeleteMountPoint(directory string) error {
	call := Call{Name: "Volumes.DeleteMountPoint", Targets: []string{directory}, Changes: true}
	return do(context.Background(), v.c, call, func() error {
		n, err := v.c.m.folder(directory)
		if err != nil {
			return err
		}
		if err := isMountedFolder(n); err != nil {
			return err
		}
		if err := n.fs.writable(); err != nil {
			return err
		}
		n.reparse, n.tag = nil, 0
		delete(v.c.m.mounted, n)
		return nil
	})
}

func isMountedFolder(n *node) error {
	switch {
	case n.reparse == nil:
		return win32.ErrorNotAReparsePoint
	case !n.target().IsVolume():
		return win32.ErrorInvalidParameter
	}
	return nil
}

// MountPoint implements win32.Volumes. A mounted folder whose volume is away is
// ERROR_FILE_NOT_FOUND.
func (v volumeCalls) MountPoint(directory string) (string, error) {
	call := Call{Name: "Volumes.MountPoint", Targets: []string{directory}}
	return invoke(context.Background(), v.c, call, func() (string, error) {
		n, err := v.c.m.folder(directory)
		if err != nil {
			return "", err
		}
		if n.parent == nil && n == n.fs.root {
			return n.fs.volume.name, nil
		}
		if err := isMountedFolder(n); err != nil {
			return "", err
		}
		volume, err := v.c.m.volume(n.target().Target())
		if err != nil {
			return "", err
		}
		return volume.name, nil
	})
}
