// Package mount mounts, binds and unmounts without trusting any path twice: a
// path is resolved once, to a descriptor, without following a symlink, and all
// work is done on that descriptor. Mounts are read from the kernel every time and not
// cached.
package mount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Table is the mount table of this process, in the order of mounting.
func Table() ([]*mountinfo.Info, error) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return table, nil
}

// ByID finds a mount in a table; nil when it is not there.
func ByID(table []*mountinfo.Info, id uint64) *mountinfo.Info {
	for _, m := range table {
		if uint64(m.ID) == id {
			return m
		}
	}
	return nil
}

// HasOption reports whether a comma-separated list contains an option.
func HasOption(list, option string) bool {
	return slices.Contains(strings.Split(list, ","), option)
}

// Covering finds the mount that a path is on: the last one of those with the
// longest mount point above it. It asks no filesystem. nil when there is none.
func Covering(table []*mountinfo.Info, path string) *mountinfo.Info {
	var found *mountinfo.Info
	for _, m := range table {
		above := m.Mountpoint == path || strings.HasPrefix(path, strings.TrimSuffix(m.Mountpoint, "/")+"/")
		if above && (found == nil || len(m.Mountpoint) >= len(found.Mountpoint)) {
			found = m
		}
	}
	return found
}
