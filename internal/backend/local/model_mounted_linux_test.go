package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
)

// mountedSnapshot takes a snapshot of a mounted volume while a thaw, or any other
// system call, fails. An administrator may have frozen the filesystem before. In
// the end it is frozen if and only if he did, and a repeated call succeeds.
func (m *model) mountedSnapshot() {
	byAdministrator := rapid.Bool().Draw(m.T, "frozen by an administrator")
	plan := syscallfault.Once(rapid.IntRange(1, 80).Draw(m.T, "number"), unix.EIO)
	if !byAdministrator && rapid.Bool().Draw(m.T, "thaw fails") {
		plan = failThaw
	}
	request := guard.CreateRequest{
		Name: "mounted", Range: backend.SizeRange{Required: 8 * mebibyte},
		Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter}},
	}
	volume, err := m.guard.CreateVolume(m.ctx(), request)
	m.want(err, nil)
	dir := m.mount(volume.ID)
	if byAdministrator {
		freezeMount(m.T, dir)
	}
	snapshot := func() error {
		_, err := m.guard.CreateSnapshot(m.ctx(), backend.SnapshotSpec{Name: "of mounted", SourceID: volume.ID})
		return err
	}
	_ = m.run(plan, snapshot, dir) // as in the other calls, its outcome is read from the pool
	if isFrozen(m.T, dir) != byAdministrator {
		m.Fatalf("frozen by an administrator: %t; after the call and its resolution: %t", byAdministrator, !byAdministrator)
	}
	m.want(snapshot(), nil)
	if isFrozen(m.T, dir) != byAdministrator {
		m.Fatalf("frozen by an administrator: %t; after the repeated call: %t", byAdministrator, !byAdministrator)
	}
	m.unmount(dir)
	m.want(m.guard.DeleteSnapshot(m.ctx(), idOf(snapshotPrefix, "of mounted")), nil)
	m.want(m.guard.DeleteVolume(m.ctx(), volume.ID), nil)
}

// mount formats a volume with ext4 and mounts it next to the pool's filesystem.
func (m *model) mount(id string) string {
	m.Helper()
	device, err := m.pool.OpenDevice(m.ctx(), backend.DeviceRequest{VolumeID: id})
	m.want(err, nil)
	result, err := command.NewSystem().Run(m.ctx(), command.Command{Name: "mkfs.ext4", Args: []string{"-q", "-F", device.Path}})
	if err != nil || result.ExitCode != 0 {
		m.Fatalf("mkfs.ext4: %v, %s", err, result.Stderr)
	}
	dir := filepath.Join(filepath.Dir(m.base), "volume")
	m.want(os.MkdirAll(dir, 0o700), nil)
	m.want(unix.Mount(device.Path, dir, fs.Ext4, 0, ""), nil)
	m.want(device.Release(), nil)
	m.mounted = dir
	return dir
}

// unmount thaws a filesystem that an administrator froze, and waits for the device to go.
func (m *model) unmount(dir string) {
	m.Helper()
	root, err := os.Open(dir)
	if err == nil {
		err = errors.Join(fs.Thaw(root), root.Close())
	}
	m.want(err, nil)
	unmount(m, dir)
	m.mounted = ""
}

// endMounted removes the mount that a run that failed left.
func (m *model) endMounted() {
	if m.mounted == "" {
		return
	}
	if root, err := os.Open(m.mounted); err == nil {
		_ = errors.Join(fs.Thaw(root), root.Close())
		unmount(m, m.mounted)
	}
	if m.pool != nil {
		_ = m.pool.DeleteVolume(context.Background(), idOf(volumePrefix, "mounted"))
	}
}
