package native

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type volumes struct{ wmi *wmi }

// volumeNameLength is enough for \\?\Volume{GUID}\ and its NUL.
const volumeNameLength = 64

// All implements win32.Volumes. It always closes the search.
func (volumes) All() (list []string, err error) {
	var name [volumeNameLength]uint16
	search, err := windows.FindFirstVolume(&name[0], volumeNameLength)
	if err != nil {
		return nil, failed("FindFirstVolume", err)
	}
	defer func() { err = errors.Join(err, failed("FindVolumeClose", windows.FindVolumeClose(search))) }()
	for {
		list = append(list, windows.UTF16ToString(name[:]))
		if err := windows.FindNextVolume(search, &name[0], volumeNameLength); err != nil {
			if errno(err) == win32.ErrorNoMoreFiles {
				return list, nil
			}
			return nil, failed("FindNextVolume", err)
		}
	}
}

// Open implements win32.Volumes.
func (volumes) Open(volume string, access win32.Access) (win32.Device, error) {
	return openDevice(withoutSlash(volume), access)
}

// Information implements win32.Volumes.
func (volumes) Information(volume string) (win32.VolumeInformation, error) {
	var information win32.VolumeInformation
	root, err := utf16(volume)
	if err != nil {
		return information, err
	}
	var label, fileSystem [windows.MAX_PATH + 1]uint16
	var component uint32
	if err := windows.GetVolumeInformation(root, &label[0], uint32(len(label)), &information.Serial,
		&component, &information.Flags, &fileSystem[0], uint32(len(fileSystem))); err != nil {
		return win32.VolumeInformation{}, failed("GetVolumeInformation", err)
	}
	information.Label = windows.UTF16ToString(label[:])
	information.FileSystem = windows.UTF16ToString(fileSystem[:])
	return information, nil
}

// FreeSpace implements win32.Volumes.
func (volumes) FreeSpace(path string) (win32.FreeSpace, error) {
	var space win32.FreeSpace
	name, err := utf16(path)
	if err != nil {
		return space, err
	}
	if err := windows.GetDiskFreeSpaceEx(name, &space.Available, &space.Total, &space.Free); err != nil {
		return win32.FreeSpace{}, failed("GetDiskFreeSpaceEx", err)
	}
	return space, nil
}

// SetMountPoint implements win32.Volumes.
func (volumes) SetMountPoint(directory, volume string) error {
	at, err := utf16(directory)
	if err != nil {
		return err
	}
	name, err := utf16(volume)
	if err != nil {
		return err
	}
	return failed("SetVolumeMountPoint", windows.SetVolumeMountPoint(at, name))
}

// DeleteMountPoint implements win32.Volumes.
func (volumes) DeleteMountPoint(directory string) error {
	at, err := utf16(directory)
	if err != nil {
		return err
	}
	return failed("DeleteVolumeMountPoint", windows.DeleteVolumeMountPoint(at))
}

// MountPoint implements win32.Volumes.
func (volumes) MountPoint(directory string) (string, error) {
	at, err := utf16(directory)
	if err != nil {
		return "", err
	}
	var name [volumeNameLength]uint16
	if err := windows.GetVolumeNameForVolumeMountPoint(at, &name[0], volumeNameLength); err != nil {
		return "", failed("GetVolumeNameForVolumeMountPoint", err)
	}
	return windows.UTF16ToString(name[:]), nil
}

// pathNamesLimit bounds the list of a volume's mount points, in characters.
const pathNamesLimit = 1 << 20

// PathNames implements win32.Volumes.
func (volumes) PathNames(volume string) ([]string, error) {
	name, err := utf16(volume)
	if err != nil {
		return nil, err
	}
	for size := uint32(windows.MAX_PATH + 1); ; {
		names := make([]uint16, size)
		var needed uint32
		err := windows.GetVolumePathNamesForVolumeName(name, &names[0], size, &needed)
		switch {
		case err == nil:
			return win32.DecodeMultiString(names), nil
		case errno(err) != win32.ErrorMoreData || size >= pathNamesLimit:
			return nil, failed("GetVolumePathNamesForVolumeName", err)
		}
		size = min(max(2*size, needed), pathNamesLimit)
	}
}

// Format implements win32.Volumes by MSFT_Volume.Format of WMI. The other way,
// FormatEx of fmifs.dll, is not documented: its callback reports only that it failed,
// and there is one per process. A volume is formatted once, so the cost of WMI is
// acceptable.
func (v volumes) Format(ctx context.Context, volume string, request win32.FormatRequest) error {
	return awaitError(ctx, v.wmi.gate, func() error {
		return v.wmi.run(namespaceStorage, func(s *session) error { return format(s, volume, request) })
	})
}

func format(s *session, volume string, request win32.FormatRequest) error {
	found, err := s.find("MSFT_Volume", "Path", func(path string) bool {
		return path != "" && strings.EqualFold(withoutSlash(path), withoutSlash(volume))
	})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		release(found)
		return fmt.Errorf("MSFT_Volume: %d instances with path %s: %w", len(found), volume, win32.ErrorNotFound)
	}
	defer found[0].release()
	parameters := []parameter{
		{"FileSystem", request.FileSystem},
		{"FileSystemLabel", request.Label},
		{"Full", false},
		{"Force", false}, // so that it rejects a volume that another program has open
	}
	if request.ClusterSize != 0 {
		parameters = append(parameters, parameter{"AllocationUnitSize", int32(request.ClusterSize)})
	}
	return found[0].call("Format", storageResult, parameters...)
}
