// Package mounter is k8s.io/mount-utils' Interface over csi-proxy, for node
// plugins in Windows containers that are written for that interface.
//
// On Windows a mount is a link to a directory, a volume at a directory (a mounted
// folder), or a link to an SMB share; which of them, the source says. Nothing is
// ever formatted: a plugin that wants that calls FormatVolume of the client.
package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// Limit is how long an operation may take; the interface has no contexts.
const Limit = 2 * time.Minute

// ErrUnsupported is wrapped by the error of what Windows or csi-proxy cannot do.
var ErrUnsupported = errors.New("not supported on Windows")

// Mounter mounts by csi-proxy. Paths may have slashes, and no drive letter, as
// kubelet's do.
type Mounter struct {
	proxy v1.CSIProxyServiceClient
	limit time.Duration

	mu sync.Mutex
	// shares are the remote paths by target, which Unmount must give back.
	shares map[string]string
}

var _ mount.Interface = (*Mounter)(nil)

// New makes a mounter over a client of csi-proxy; see package client.
func New(proxy v1.CSIProxyServiceClient) *Mounter {
	return &Mounter{proxy: proxy, limit: Limit, shares: map[string]string{}}
}

func (m *Mounter) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), m.limit)
}

// Mount implements mount.Interface. The source is one of
//
//	C:\a\directory          a link to it is made at the target; a "bind" mount
//	\\?\Volume{GUID}\       is mounted at the target, which is made if missing
//	\\server\share\below    is mapped, with the options username=, password= and domain=
//
// A target that is an empty directory is replaced by the link. The file system
// type may be empty; a volume of another type, or of none, is refused with a
// mount.MountError. Read-only mounts are refused.
func (m *Mounter) Mount(source, target, fstype string, options []string) error {
	return m.MountSensitive(source, target, fstype, options, nil)
}

// MountSensitive implements mount.Interface. Sensitive options are in no error.
func (m *Mounter) MountSensitive(source, target, fstype string, options, sensitiveOptions []string) error {
	target = paths.Normalize(target)
	source = paths.Normalize(source)
	parsed, err := parseOptions(options, sensitiveOptions)
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	ctx, cancel := m.context()
	defer cancel()
	switch kind := kindOf(source); {
	case kind != share && parsed.credentials():
		err = fmt.Errorf("%w: only a share has a user and a password", ErrUnsupported)
	case kind == share:
		err = m.mountShare(ctx, source, target, parsed)
	case kind == volume:
		err = m.mountVolume(ctx, source, target, fstype)
	default:
		err = m.link(ctx, source, target)
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	return nil
}

// MountSensitiveWithoutSystemd implements mount.Interface.
func (m *Mounter) MountSensitiveWithoutSystemd(source, target, fstype string, options, sensitiveOptions []string) error {
	return m.MountSensitive(source, target, fstype, options, sensitiveOptions)
}

// MountSensitiveWithoutSystemdWithMountFlags implements mount.Interface. There is
// no mount command that could take flags.
func (m *Mounter) MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string, options, sensitiveOptions, mountFlags []string) error {
	if len(mountFlags) > 0 {
		return fmt.Errorf("mounting at %s: %w: mount flags %q", target, ErrUnsupported, mountFlags)
	}
	return m.MountSensitive(source, target, fstype, options, sensitiveOptions)
}

// link makes a link at the target. Kubelet and plugins may have made a directory
// there, which is in the way when it is empty only.
func (m *Mounter) link(ctx context.Context, source, target string) error {
	request := &v1.LinkVolumeRequest{StagingPath: source, TargetPath: target}
	_, err := m.proxy.LinkVolume(ctx, request)
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	existing, lookErr := m.proxy.IsLink(ctx, &v1.IsLinkRequest{Path: target})
	if lookErr != nil {
		return errors.Join(err, lookErr)
	}
	if existing.GetIsLink() {
		return err // to something else, which is in use
	}
	if _, err := m.proxy.Rmdir(ctx, &v1.RmdirRequest{Path: target}); err != nil {
		return fmt.Errorf("making room for the link: %w", err)
	}
	_, err = m.proxy.LinkVolume(ctx, request)
	return err
}

func (m *Mounter) mountVolume(ctx context.Context, volumeID, target, fstype string) error {
	response, err := m.proxy.GetVolumeFileSystem(ctx, &v1.GetVolumeFileSystemRequest{VolumeId: volumeID})
	if err != nil {
		return err
	}
	switch found := response.GetFileSystem(); {
	case found == "":
		return mount.NewMountError(mount.UnknownMountError, "volume %s has no file system; it is formatted by FormatVolume only", volumeID)
	case fstype != "" && !strings.EqualFold(found, fstype):
		return mount.NewMountError(mount.FilesystemMismatch, "volume %s has the file system %s, not %s", volumeID, found, fstype)
	}
	if _, err := m.proxy.Mkdir(ctx, &v1.MkdirRequest{Path: target}); err != nil {
		return err
	}
	_, err = m.proxy.MountVolume(ctx, &v1.MountVolumeRequest{VolumeId: volumeID, StagingPath: target})
	return err
}

func (m *Mounter) mountShare(ctx context.Context, remote, target string, o options) error {
	_, err := m.proxy.MountSMBShare(ctx, &v1.MountSMBShareRequest{
		RemotePath: remote, StagingPath: target, Username: o.user(), Password: o.password,
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares[strings.ToLower(target)] = remote
	return nil
}

// Unmount implements mount.Interface. It writes the caches of a volume, and takes
// away the link or mounted folder with its directory; nothing there is fine. Of a
// share that this Mounter has not mounted itself, since the process was started
// anew, only the link goes: use UnmountShare.
func (m *Mounter) Unmount(target string) error {
	target = paths.Normalize(target)
	m.mu.Lock()
	remote, isShare := m.shares[strings.ToLower(target)]
	m.mu.Unlock()
	if isShare {
		return m.UnmountShare(remote, target)
	}
	ctx, cancel := m.context()
	defer cancel()
	if err := m.unmount(ctx, target); err != nil {
		return fmt.Errorf("unmounting %s: %w", target, err)
	}
	return nil
}

func (m *Mounter) unmount(ctx context.Context, target string) error {
	exists, err := m.proxy.PathExists(ctx, &v1.PathExistsRequest{Path: target})
	if err != nil || !exists.GetExists() {
		return err
	}
	at, err := m.proxy.GetVolumeAtPath(ctx, &v1.GetVolumeAtPathRequest{Path: target})
	switch status.Code(err) {
	case codes.OK:
		if _, err := m.proxy.FlushVolume(ctx, &v1.FlushVolumeRequest{VolumeId: at.GetVolumeId()}); err != nil {
			return err
		}
	case codes.NotFound: // a link to a directory or share
	default:
		return err
	}
	_, err = m.proxy.Rmdir(ctx, &v1.RmdirRequest{Path: target})
	return err
}

// UnmountShare takes away the link to a share, and with its last mount the
// share's mapping.
func (m *Mounter) UnmountShare(remote, target string) error {
	remote, target = paths.Normalize(remote), paths.Normalize(target)
	ctx, cancel := m.context()
	defer cancel()
	if _, err := m.proxy.UnmountSMBShare(ctx, &v1.UnmountSMBShareRequest{RemotePath: remote, StagingPath: target}); err != nil {
		return fmt.Errorf("unmounting %s from %s: %w", remote, target, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.shares, strings.ToLower(target))
	return nil
}

// List implements mount.Interface. csi-proxy does not list mounts, so that a
// plugin sees no other's.
func (m *Mounter) List() ([]mount.MountPoint, error) {
	return nil, fmt.Errorf("listing mounts: %w", ErrUnsupported)
}

// IsLikelyNotMountPoint implements mount.Interface. It is exact here, but that a
// link whose target is gone is no mount.
func (m *Mounter) IsLikelyNotMountPoint(file string) (bool, error) {
	is, err := m.IsMountPoint(file)
	return !is, err
}

// IsMountPoint implements mount.Interface; os.ErrNotExist when nothing is there.
func (m *Mounter) IsMountPoint(file string) (bool, error) {
	file = paths.Normalize(file)
	ctx, cancel := m.context()
	defer cancel()
	response, err := m.proxy.IsLink(ctx, &v1.IsLinkRequest{Path: file})
	if status.Code(err) == codes.NotFound {
		return false, fmt.Errorf("%s: %w", file, os.ErrNotExist)
	}
	return response.GetIsLink(), err
}

// CanSafelySkipMountPointCheck implements mount.Interface: Unmount refuses what is
// no mount, when it is not empty.
func (m *Mounter) CanSafelySkipMountPointCheck() bool { return false }

// GetMountRefs implements mount.Interface. As with mount-utils' own on Windows, a
// path that is there is its only reference.
func (m *Mounter) GetMountRefs(pathname string) ([]string, error) {
	exists, err := m.PathExists(pathname)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("%s: %w", pathname, os.ErrNotExist)
	}
	return []string{pathname}, nil
}
