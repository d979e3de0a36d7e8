package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

func pathKey(path paths.Path) string { return "path " + path.Key() }

// Mount mounts a volume that has a filesystem at an empty directory.
func (v volumes) Mount(ctx context.Context, volumeID, path string) error {
	at, err := v.rules.Target("target path", path)
	if err != nil {
		return err
	}
	return v.change(ctx, volumeID, []string{pathKey(at)}, func(ctx context.Context, name string) error {
		return during(v.mount(ctx, name, at), "mount volume %s at %s", name, at)
	})
}

func (v volumes) mount(ctx context.Context, name string, at paths.Path) error {
	if err := v.mountable(name); err != nil {
		return err
	}
	target, err := v.mountTarget(ctx, at)
	if err != nil {
		return err
	}
	defer target.close()
	if same(target.volume, name) {
		return nil
	}
	if err := target.ready(); err != nil {
		return err
	}
	err = target.set(name)
	if err != nil && !isErrno(err, win32.ErrorDirNotEmpty) {
		return failed(err, "SetVolumeMountPointW")
	}
	now, readErr := target.mounted()
	switch {
	case readErr != nil:
		return readErr
	case same(now, name):
		return nil // perhaps mounted by another call
	case err != nil && now == "":
		return failed(err, "SetVolumeMountPointW")
	case err != nil:
		return fmt.Errorf("%w: the volume %s is mounted there: %w", backend.ErrPrecondition, now, err)
	}
	return fmt.Errorf("SetVolumeMountPointW answered success, but %q is mounted there", now)
}

// CheckMount returns the error with which Mount would reject a directory as it is
// now, and changes nothing. A caller that formats and then mounts checks the directory
// before it formats.
func (v volumes) CheckMount(ctx context.Context, volumeID, path string) error {
	at, err := v.rules.Target("target path", path)
	if err != nil {
		return err
	}
	_, err = ask(ctx, v.tasks, pathKey(at), noResult(func(ctx context.Context) error {
		target, err := v.mountTarget(ctx, at)
		if err != nil {
			return err
		}
		defer target.close()
		if same(target.volume, volumeID) {
			return nil
		}
		return target.ready()
	}))
	return during(err, "inspect %s", at)
}

// mountable rejects a volume without a filesystem. It removes the intent of a format
// before the first file is written: a caller mounts only a volume whose format is
// complete.
func (v volumes) mountable(name string) error {
	fileSystem, err := v.filesystemOf(name)
	if err != nil {
		return err
	}
	if fileSystem == "" {
		return fmt.Errorf("%w: it has no filesystem; format it first", backend.ErrPrecondition)
	}
	return v.records.remove(formatRecord(name))
}

// same reports whether two names are those of one volume, as Windows compares them.
func same(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, `\`), strings.TrimSuffix(b, `\`)) && a != ""
}

// Unmount unmounts a volume from a directory. It succeeds if the directory or the
// volume no longer exists: a driver that retries NodeUnstageVolume finds neither.
func (v volumes) Unmount(ctx context.Context, volumeID, path string) error {
	at, err := v.rules.Target("target path", path)
	if err != nil {
		return err
	}
	return v.change(ctx, volumeID, []string{pathKey(at)}, func(ctx context.Context, name string) error {
		return during(v.unmount(ctx, name, at), "unmount volume %s from %s", name, at)
	})
}

func (v volumes) unmount(ctx context.Context, name string, at paths.Path) error {
	target, err := v.mountTarget(ctx, at)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer target.close()
	switch {
	case target.volume == "":
		return nil
	case !same(target.volume, name):
		return fmt.Errorf("%w: the volume %s is mounted there, and stays mounted", backend.ErrPrecondition, target.volume)
	}
	if err := v.flushVolume(name); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("flush: %w", err)
	}
	if err := v.machine.Volumes.DeleteMountPoint(target.directory); err != nil && !isGone(err) {
		return failed(err, "DeleteVolumeMountPointW")
	}
	now, err := target.mounted()
	if err != nil && !isGone(err) {
		return err
	}
	if now != "" {
		return fmt.Errorf("DeleteVolumeMountPointW answered success, but the volume %s is still mounted there", now)
	}
	return nil
}
