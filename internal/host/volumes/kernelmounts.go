package volumes

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// KernelMounts are those of the running kernel.
type KernelMounts struct{}

// Below implements Mounts.
func (KernelMounts) Below(directory string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(directory))
	paths := make([]string, 0, len(mounts))
	for _, mount := range mounts {
		paths = append(paths, mount.Mountpoint)
	}
	return paths, err
}

// OthersOf implements Mounts.
func (KernelMounts) OthersOf(path string) ([]string, error) { return mountsOfSame(path) }

// mountsOfSame lists the other mount points of the filesystem at a path, or of a part of
// it. It leaves out copies that mount propagation made because a directory above is
// mounted twice: they are unmounted together with the first.
func mountsOfSame(staging string) ([]string, error) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	peers := map[int]string{}
	var own *mountinfo.Info
	for _, mount := range table {
		peers[mount.ID] = peerGroup(mount)
		if mount.Mountpoint == staging {
			own = mount
		}
	}
	if own == nil {
		return nil, nil
	}
	var others []string
	for _, mount := range table {
		same := mount.Major == own.Major && mount.Minor == own.Minor && isPart(mount.Root, own.Root)
		if mount.Mountpoint == staging || !same {
			continue
		}
		if group := peers[own.Parent]; mount.Parent != own.Parent && group != "" && group == peers[mount.Parent] {
			continue
		}
		others = append(others, mount.Mountpoint)
	}
	slices.Sort(others)
	return slices.Compact(others), nil
}

// peerGroup is the number of the group that a mount shares its mounts with
// (mountinfo's shared:N), "" if it has none.
func peerGroup(mount *mountinfo.Info) string {
	for _, field := range strings.Fields(mount.Optional) {
		if group, ok := strings.CutPrefix(field, "shared:"); ok {
			return group
		}
	}
	return ""
}

// isPart reports whether one root of a filesystem's mounts lies in another.
func isPart(root, whole string) bool {
	return whole == "/" || root == whole || strings.HasPrefix(root, path.Clean(whole)+"/")
}
