//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

const gib = 1 << 30

func measureStage(ctx context.Context, s settings) ([]row, error) {
	return with(ctx, s, "stage", 0, func(d *driver) ([]row, error) {
		var rows []row
		for _, step := range []func(context.Context, settings, *driver) ([]row, error){
			measureMemory, measureFresh, measureRestage, measurePublish, measureExpand,
		} {
			measured, err := step(ctx, s, d)
			if err != nil {
				return nil, err
			}
			rows = append(rows, measured...)
		}
		return rows, nil
	})
}

func measureFresh(ctx context.Context, s settings, d *driver) ([]row, error) {
	staged, err := repeat(s.rounds, func(round int) (time.Duration, error) {
		v, err := d.create(ctx, fmt.Sprintf("fresh-%d", round), gib, mounted("ext4"), nil, nil)
		if err != nil {
			return 0, err
		}
		took, err := clock(func() error { return v.stage(ctx) })
		if err != nil {
			return 0, err
		}
		if err := v.unstage(ctx); err != nil {
			return 0, err
		}
		return took, v.delete(ctx)
	})
	if err != nil {
		return nil, err
	}
	made, err := repeat(s.rounds, func(int) (time.Duration, error) { return mkfsAlone(ctx, d.dir, gib) })
	if err != nil {
		return nil, err
	}
	return []row{times("NodeStage ext4, fresh, 1 GiB", staged, "mkfs.ext4 alone on a loop device", made, "mkfs + 15 ms")}, nil
}

// mkfsAlone times mkfs.ext4, with the flags Holdfast gives it, on a new loop
// device with direct I/O.
func mkfsAlone(ctx context.Context, dir string, size int64) (took time.Duration, err error) {
	device, remove, err := loopFile(ctx, filepath.Join(dir, "alone"), size)
	if err != nil {
		return 0, err
	}
	took, err = clock(func() error {
		_, err := tool(ctx, "mkfs.ext4", "-F", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", device)
		return err
	})
	if removeErr := remove(); err == nil {
		err = removeErr
	}
	return took, err
}

// loopFile attaches a new sparse file by losetup.
func loopFile(ctx context.Context, path string, size int64) (device string, remove func() error, err error) {
	file, err := os.Create(path)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = file.Close() }()
	if err := file.Truncate(size); err != nil {
		return "", nil, err
	}
	output, err := tool(ctx, "losetup", "--find", "--show", "--direct-io=on", path)
	device = strings.TrimSpace(output)
	return device, func() error {
		if _, err := tool(ctx, "losetup", "--detach", device); err != nil {
			return err
		}
		return os.Remove(path)
	}, err
}

func measureRestage(ctx context.Context, s settings, d *driver) ([]row, error) {
	var rows []row
	for _, fsType := range []string{"ext4", "xfs"} {
		v, err := d.create(ctx, "again-"+fsType, gib, mounted(fsType), nil, nil)
		if err != nil {
			return nil, err
		}
		if err := v.stage(ctx); err != nil {
			return nil, err
		}
		if err := v.unstage(ctx); err != nil {
			return nil, err
		}
		staged, err := repeat(s.rounds, func(int) (time.Duration, error) {
			took, err := clock(func() error { return v.stage(ctx) })
			if err != nil {
				return 0, err
			}
			return took, v.unstage(ctx)
		})
		if err != nil {
			return nil, err
		}
		byTools, err := repeat(s.rounds, func(int) (time.Duration, error) { return stageByTools(ctx, d, v) })
		if err != nil {
			return nil, err
		}
		rows = append(rows, times("NodeStage "+fsType+", formatted before", staged, "tools: losetup, blkid, mount", byTools, "≤ 8 ms, no child process"))
		if err := v.delete(ctx); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// stageByTools attaches, probes and mounts the volume's file as drivers do
// that call the usual programs.
func stageByTools(ctx context.Context, d *driver, v *volume) (time.Duration, error) {
	file := filepath.Join(d.pool, "volumes", v.id, "data")
	var device string
	took, err := clock(func() error {
		output, err := tool(ctx, "losetup", "--find", "--show", "--direct-io=on", file)
		if err != nil {
			return err
		}
		device = strings.TrimSpace(output)
		if _, err := tool(ctx, "blkid", "-p", device); err != nil {
			return err
		}
		_, err = tool(ctx, "mount", device, v.staging)
		return err
	})
	if err != nil {
		return 0, err
	}
	if _, err := tool(ctx, "umount", v.staging); err != nil {
		return 0, err
	}
	_, err = tool(ctx, "losetup", "--detach", device)
	return took, err
}

func measurePublish(ctx context.Context, s settings, d *driver) ([]row, error) {
	v, err := d.create(ctx, "published", gib, mounted("ext4"), nil, nil)
	if err != nil {
		return nil, err
	}
	if err := v.stage(ctx); err != nil {
		return nil, err
	}
	published, err := repeat(s.rounds, func(int) (time.Duration, error) {
		return clock(func() error {
			if err := v.publish(ctx); err != nil {
				return err
			}
			return v.unpublish(ctx)
		})
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(v.target, 0o750); err != nil {
		return nil, err
	}
	byTools, err := repeat(s.rounds, func(int) (time.Duration, error) {
		return clock(func() error {
			if _, err := tool(ctx, "mount", "--bind", v.staging, v.target); err != nil {
				return err
			}
			_, err := tool(ctx, "umount", v.target)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if err := v.unstage(ctx); err != nil {
		return nil, err
	}
	return []row{times("NodePublish + NodeUnpublish", published, "tools: mount --bind, umount", byTools, "-")}, v.delete(ctx)
}

// measureExpand grows mounted filesystems. The kernel grows ext4 online only
// for a process with CAP_SYS_RESOURCE, which some machines withhold from root.
func measureExpand(ctx context.Context, s settings, d *driver) ([]row, error) {
	rows, err := measureGrowth(ctx, s, d, "xfs", "xfs_growfs", func(v *volume, _ string) string { return v.staging })
	if err != nil {
		return nil, err
	}
	allowed, err := mayGrowExt4()
	if err != nil || !allowed {
		return append(rows, row{"NodeExpand online, ext4, by 64 MiB", "-", "-", "-", "-", "not here: no CAP_SYS_RESOURCE"}), err
	}
	more, err := measureGrowth(ctx, s, d, "ext4", "resize2fs", func(_ *volume, device string) string { return device })
	return append(rows, more...), err
}

func mayGrowExt4() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0, err
}

func measureGrowth(ctx context.Context, s settings, d *driver, fsType, program string, argument func(v *volume, device string) string) ([]row, error) {
	v, err := d.create(ctx, "grown-"+fsType, gib, mounted(fsType), nil, nil)
	if err != nil {
		return nil, err
	}
	if err := v.up(ctx); err != nil {
		return nil, err
	}
	size := v.size
	grow := func() error {
		size += 64 << 20
		_, err := d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
		return err
	}
	expanded, err := repeat(s.rounds, func(int) (time.Duration, error) {
		if err := grow(); err != nil {
			return 0, err
		}
		return clock(func() error {
			_, err := d.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, VolumeCapability: v.capability})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	device, err := tool(ctx, "findmnt", "-n", "-o", "SOURCE", "--mountpoint", v.staging)
	if err != nil {
		return nil, err
	}
	device = strings.TrimSpace(device)
	byTools, err := repeat(s.rounds, func(int) (time.Duration, error) {
		if err := grow(); err != nil {
			return 0, err
		}
		return clock(func() error {
			if _, err := tool(ctx, "losetup", "--set-capacity", device); err != nil {
				return err
			}
			_, err := tool(ctx, program, argument(v, device))
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return []row{times("NodeExpand online, "+fsType+", by 64 MiB", expanded, "tools: losetup -c, "+program, byTools, "≤ 5 ms, no child process")}, v.down(ctx)
}

func measureMemory(ctx context.Context, _ settings, d *driver) ([]row, error) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.command.Process.Pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		if kib, found := strings.CutPrefix(line, "VmRSS:"); found {
			var n float64
			if _, err := fmt.Sscanf(kib, "%f", &n); err != nil {
				return nil, err
			}
			return []row{{"driver resident memory, idle", fmt.Sprintf("%.1f MiB", n/1024), "-", "-", "-", "≤ 30 MiB"}}, nil
		}
	}
	return nil, fmt.Errorf("no VmRSS of the driver")
}
