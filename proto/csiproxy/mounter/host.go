package mounter

import (
	"fmt"

	"k8s.io/mount-utils"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// These are the methods of kubelet's hostutil.HostUtils that mean something on
// Windows, with its signatures. The interface itself is not in mount-utils.

// PathExists tells whether something is at the path; a link that leads nowhere is.
func (m *Mounter) PathExists(pathname string) (bool, error) {
	ctx, cancel := m.context()
	defer cancel()
	response, err := m.proxy.PathExists(ctx, &v1.PathExistsRequest{Path: paths.Normalize(pathname)})
	return response.GetExists(), err
}

// GetDeviceNameFromMount gives the ID of the volume at a mount.
func (m *Mounter) GetDeviceNameFromMount(_ mount.Interface, mountPath, _ string) (string, error) {
	ctx, cancel := m.context()
	defer cancel()
	response, err := m.proxy.GetVolumeAtPath(ctx, &v1.GetVolumeAtPathRequest{Path: paths.Normalize(mountPath)})
	return response.GetVolumeId(), err
}

// DeviceOpened is false: Windows has no device files.
func (m *Mounter) DeviceOpened(string) (bool, error) { return false, nil }

// PathIsDevice is false: Windows has no device files.
func (m *Mounter) PathIsDevice(string) (bool, error) { return false, nil }

// MakeRShared does nothing: Windows has no mount propagation.
func (m *Mounter) MakeRShared(string) error { return nil }

// GetOwner is -1 for both, as on Windows everywhere.
func (m *Mounter) GetOwner(string) (uid, gid int64, err error) { return -1, -1, nil }

// GetSELinuxSupport is false.
func (m *Mounter) GetSELinuxSupport(string) (bool, error) { return false, nil }

// EvalHostSymlinks is refused: csi-proxy does not tell where a link leads.
func (m *Mounter) EvalHostSymlinks(pathname string) (string, error) {
	return "", fmt.Errorf("resolving %s: %w", pathname, ErrUnsupported)
}
