package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// disk are the checks on the named disk, in the order of a volume's life.
func (s *Session) disk() []verify.Check {
	const life = "docs/reference/windows.md, Node plugin"
	return []verify.Check{
		check("win-disk-is-named", "the disk of the number has the serial number that Windows' tools show, without the blanks that pad it",
			"STORAGE_DEVICE_DESCRIPTOR", "a volume is not found by its serial number", s.isNamed),
		check("win-disk-raw", "a blank disk has the partition style RAW and no partitions",
			"IOCTL_DISK_GET_DRIVE_LAYOUT_EX", "a blank disk is refused, or one with data is not", s.isRaw),
		check("win-disk-partition", "the disk comes online, gets a GPT with one data partition, and Windows makes a volume of it",
			life, "NodeStageVolume fails", s.partition),
		check("win-volume-raw", "GetVolumeInformationW of the new volume is ERROR_UNRECOGNIZED_VOLUME",
			undocumented, "a blank volume is refused, or a filesystem is formatted over", func(context.Context) verify.Result {
				if skipped, missing := s.needsVolume(); missing {
					return skipped
				}
				_, err := s.Machine.Volumes.Information(s.volume)
				return refused(err, win32.ErrorUnrecognizedVolume)
			}),
		check("win-volume-extent", "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS shows the volume on this disk",
			"IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS", "the disk of a volume is not found", func(ctx context.Context) verify.Result {
				if skipped, missing := s.needsVolume(); missing {
					return skipped
				}
				number, err := s.Host.Volumes.DiskOf(ctx, s.volume)
				if err != nil {
					return verify.Differed("%v", err)
				}
				return expect(number, s.Disk)
			}),
		check("win-format", "MSFT_Volume.Format makes an NTFS on it, which GetVolumeInformationW then shows",
			"MSFT_Volume.Format", "NodeStageVolume fails", s.format),
		check("win-mount", "SetVolumeMountPointW mounts it at an empty directory, which GetVolumeNameForVolumeMountPointW and the path names then show",
			"SetVolumeMountPointW", "NodeStageVolume fails", s.mount),
		check("win-mount-is-reparse", "the mounted folder is a reparse point with IO_REPARSE_TAG_MOUNT_POINT, and is not entered by name",
			"Reparse Points and File Operations", "a mounted folder is taken for a directory and emptied", s.in(func(d win32.Directory) verify.Result {
				if s.folder == "" {
					return verify.Skipped("its volume was not mounted")
				}
				info, err := d.Stat("mount")
				if err != nil || !info.IsReparse() {
					return verify.Differed("attributes %#x, %v", info.Attributes, err)
				}
				inner, err := d.Open("mount")
				if err == nil {
					_ = inner.Close()
				}
				return refused(err, win32.ErrorStoppedOnSymlink)
			})),
		check("win-stats", "GetDiskFreeSpaceExW has the volume's size",
			"GetDiskFreeSpaceExW", "NodeGetVolumeStats is wrong", func(ctx context.Context) verify.Result {
				if s.folder == "" {
					return verify.Skipped("its volume was not mounted")
				}
				stats, err := s.Host.Volumes.Stats(ctx, s.volume)
				if err != nil || stats.Total <= 0 || stats.Used < 0 || stats.Used > stats.Total {
					return verify.Differed("%+v, %v", stats, err)
				}
				return verify.Held("%d of %d bytes", stats.Used, stats.Total)
			}),
		check("win-unmount", "the volume is flushed, and DeleteVolumeMountPointW leaves an empty directory",
			"DeleteVolumeMountPointW", "NodeUnstageVolume fails", s.unmount),
		check("win-offline", "the disk goes offline, and its volume is no longer listed",
			"IOCTL_DISK_SET_DISK_ATTRIBUTES", "a volume stays in use after NodeUnstageVolume", s.offline),
	}
}

func (s *Session) isNamed(ctx context.Context) verify.Result {
	if s.Serial == "" {
		return verify.Skipped("it writes to a disk: name a blank one with --disk and --serial")
	}
	disks, err := s.Host.Disks.List(ctx)
	if err != nil {
		return verify.Differed("%v", err)
	}
	for _, d := range disks {
		if d.Number != s.Disk {
			continue
		}
		if d.SerialNumber != strings.TrimSpace(s.Serial) {
			return verify.Differed("serial number %q; the disk is not touched", d.SerialNumber)
		}
		s.identity = d.Identity()
		return verify.Held("%q", d.SerialNumber)
	}
	return verify.Differed("there is no disk %d", s.Disk)
}

// isRaw keeps the later checks from a disk that has partitions: the host would return the
// volume of one.
func (s *Session) isRaw(context.Context) verify.Result {
	if s.identity.SerialNumber == "" {
		return verify.Skipped("the disk is not known to be the named one")
	}
	layout, err := s.layout(s.Disk)
	if err != nil {
		return s.untouched("%v", err)
	}
	if layout.Style != win32.StyleRaw || len(layout.Partitions) > 0 {
		return s.untouched("style %d with %d entries", layout.Style, len(layout.Partitions))
	}
	return verify.Held("raw")
}

// untouched is the result for a disk that no check may write to.
func (s *Session) untouched(format string, arguments ...any) verify.Result {
	s.identity.SerialNumber = ""
	return verify.Differed("%s; the disk is not touched: name a blank one", fmt.Sprintf(format, arguments...))
}

func (s *Session) partition(ctx context.Context) verify.Result {
	if s.identity.SerialNumber == "" {
		return verify.Skipped("the disk is not known to be the named one, or not blank")
	}
	s.Ledger.AddLasting("partition of disk", fmt.Sprint(s.Disk), fmt.Sprintf("Clear-Disk -Number %d -RemoveData (PowerShell)", s.Disk))
	volume, err := s.Host.Disks.Partition(ctx, s.Disk, s.identity)
	if err != nil || volume == "" {
		return verify.Differed("volume %q, %v", volume, err)
	}
	s.volume = volume
	s.Ledger.Add("disk online", fmt.Sprint(s.Disk), fmt.Sprintf("Set-Disk -Number %d -IsOffline $true (PowerShell)", s.Disk),
		func(ctx context.Context) error { return s.Host.Disks.SetOnline(ctx, s.Disk, s.identity, false) })
	return verify.Held("a volume")
}

func (s *Session) needsVolume() (verify.Result, bool) {
	return verify.Skipped("its volume was not made"), s.volume == ""
}

func (s *Session) format(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	if err := s.Host.Volumes.Format(ctx, s.volume, "NTFS"); err != nil {
		return verify.Differed("%v", err)
	}
	information, err := s.Machine.Volumes.Information(s.volume)
	if err != nil {
		return verify.Differed("%v", err)
	}
	return expect(information.FileSystem, "NTFS")
}

func (s *Session) mount(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	folder := s.Dir + `\mount`
	if err := s.Host.Filesystem.Mkdir(ctx, folder); err != nil {
		return verify.Differed("%v", err)
	}
	s.Ledger.Add("mounted folder", folder, "mountvol "+folder+" /D", func(ctx context.Context) error {
		if err := s.Host.Volumes.Unmount(ctx, s.volume, folder); err != nil {
			return err
		}
		return s.Host.Filesystem.Rmdir(ctx, folder, false)
	})
	if err := s.Host.Volumes.Mount(ctx, s.volume, folder); err != nil {
		return verify.Differed("%v", err)
	}
	s.folder = folder
	at, err := s.Machine.Volumes.MountPoint(folder + `\`)
	if err != nil {
		return verify.Differed("%v", err)
	}
	paths, err := s.Machine.Volumes.PathNames(s.volume)
	if err != nil || len(paths) == 0 {
		return verify.Differed("path names %q, %v", paths, err)
	}
	return expect(strings.ToLower(strings.TrimSuffix(at, `\`)), strings.ToLower(strings.TrimSuffix(s.volume, `\`)))
}

func (s *Session) unmount(ctx context.Context) verify.Result {
	if s.folder == "" {
		return verify.Skipped("its volume was not mounted")
	}
	if err := s.Host.Volumes.Unmount(ctx, s.volume, s.folder); err != nil {
		return verify.Differed("%v", err)
	}
	if err := s.Host.Filesystem.Rmdir(ctx, s.folder, false); err != nil {
		return verify.Differed("remove the directory: %v", err)
	}
	s.Ledger.Removed(s.folder)
	return verify.Held("an empty directory")
}

func (s *Session) offline(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	if err := s.Host.Disks.SetOnline(ctx, s.Disk, s.identity, false); err != nil {
		return verify.Differed("%v", err)
	}
	names, err := s.Machine.Volumes.All()
	if err != nil {
		return verify.Differed("%v", err)
	}
	for _, name := range names {
		if strings.EqualFold(strings.TrimSuffix(name, `\`), strings.TrimSuffix(s.volume, `\`)) {
			return verify.Differed("%s is still listed", name)
		}
	}
	return verify.Held("not listed")
}
