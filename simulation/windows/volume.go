package windows

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// volume is a partition's volume, from when the partition came until it goes.
type volume struct {
	name      string // \\?\Volume{GUID}\
	disk      *disk
	partition *partition
	arrives   time.Time
	letter    byte // 0 for none
	gone      bool
	devices   map[*device]struct{} // handles that the filesystem knows
	lock      *device              // the handle that has locked it
}

// filesystem is the volume's; nil for a raw volume. Windows does not recognise one that is
// longer than the partition.
func (v *volume) filesystem() *filesystem {
	fs := v.disk.filesystems[v.partition.Offset]
	if fs == nil || fs.sectors*v.disk.sector > v.partition.Length {
		return nil
	}
	return fs
}

// flush writes Windows' cache to the disk.
func (v *volume) flush() {
	if fs := v.filesystem(); fs != nil {
		fs.dirty = false
	}
}

// lockedFor reports whether another handle has locked the volume.
func (v *volume) lockedFor(d *device) bool { return v.lock != nil && v.lock != d }

// allVolumes are the volumes that have arrived or will, by the numbers of their
// disks.
func (m *Machine) allVolumes() iter.Seq[*volume] {
	disks := slices.SortedFunc(slices.Values(m.disks), func(a, b *disk) int { return int(a.number) - int(b.number) })
	return func(yield func(*volume) bool) {
		for _, d := range disks {
			for _, p := range d.table.partitions {
				if p.volume != nil && !yield(p.volume) {
					return
				}
			}
		}
	}
}

// arrived are those that Windows has found.
func (m *Machine) arrived() iter.Seq[*volume] {
	now := time.Now()
	return func(yield func(*volume) bool) {
		for v := range m.allVolumes() {
			if !now.Before(v.arrives) && !yield(v) {
				return
			}
		}
	}
}

// volume finds a volume by its name with the last backslash, in any case.
func (m *Machine) volume(name string) (*volume, error) {
	if !isVolumeName(name) {
		return nil, win32.ErrorInvalidName
	}
	for v := range m.arrived() {
		if strings.EqualFold(v.name, name) {
			return v, nil
		}
	}
	return nil, win32.ErrorFileNotFound
}

func isVolumeName(name string) bool {
	const prefix = `\\?\Volume{`
	if len(name) != len(prefix)+38 || !strings.EqualFold(name[:len(prefix)], prefix) || !strings.HasSuffix(name, `}\`) {
		return false
	}
	_, err := win32.ParseGUID(name[len(prefix)-1 : len(name)-1])
	return err == nil
}

type volumeCalls struct{ c *client }

// call describes a call on a volume, with the volume's disk among its targets.
func (v volumeCalls) call(name, target string) Call {
	v.c.m.mu.Lock()
	defer v.c.m.mu.Unlock()
	call := Call{Name: name, Targets: []string{target}}
	if volume, err := v.c.m.volume(target); err == nil {
		call.Targets = append(call.Targets, volume.disk.targets()...)
	}
	return call
}

// All implements win32.Volumes.
func (v volumeCalls) All() ([]string, error) {
	return invoke(context.Background(), v.c, Call{Name: "Volumes.All"}, func() ([]string, error) {
		var names []string
		for volume := range v.c.m.arrived() {
			names = append(names, volume.name)
		}
		return names, nil
	})
}

// Open implements win32.Volumes. A handle for queries is one of the device alone,
// which the filesystem does not see: it does not delay a lock, and a lock does not
// prevent its opening.
func (v volumeCalls) Open(name string, access win32.Access) (win32.Device, error) {
	call := v.call("Volumes.Open", name)
	call.opens = true
	return invoke(context.Background(), v.c, call, func() (win32.Device, error) {
		volume, err := v.c.m.volume(name)
		if err != nil {
			return nil, err
		}
		h := &device{c: v.c, disk: volume.disk, volume: volume, access: access, id: volume.disk.arrival}
		if access != win32.Query {
			if volume.lock != nil {
				return nil, win32.ErrorAccessDenied
			}
			if volume.devices == nil {
				volume.devices = map[*device]struct{}{}
			}
			volume.devices[h] = struct{}{}
		}
		v.c.opened(h)
		return h, nil
	})
}

// Information implements win32.Volumes.
func (v volumeCalls) Information(name string) (win32.VolumeInformation, error) {
	return invoke(context.Background(), v.c, v.call("Volumes.Information", name), func() (win32.VolumeInformation, error) {
		volume, err := v.c.m.volume(name)
		if err != nil {
			return win32.VolumeInformation{}, err
		}
		fs, err := volume.mount()
		if err != nil {
			return win32.VolumeInformation{}, err
		}
		info := win32.VolumeInformation{FileSystem: fs.kind, Label: fs.label, Serial: fs.serial}
		if volume.disk.readOnly() {
			info.Flags |= win32.FileReadOnlyVolume
		}
		return info, nil
	})
}

// recognised is the filesystem that Windows sees; nil for a raw volume.
func (v *volume) recognised() *filesystem {
	if fs := v.filesystem(); fs != nil && !time.Now().Before(fs.shows) {
		return fs
	}
	return nil
}

// mount is what opening a file on the volume does first.
func (v *volume) mount() (*filesystem, error) {
	fs := v.recognised()
	switch {
	case v.lock != nil:
		return nil, win32.ErrorAccessDenied
	case fs == nil:
		return nil, win32.ErrorUnrecognizedVolume
	}
	return fs, nil
}

// FreeSpace implements win32.Volumes.
func (v volumeCalls) FreeSpace(path string) (win32.FreeSpace, error) {
	return invoke(context.Background(), v.c, v.call("Volumes.FreeSpace", path), func() (win32.FreeSpace, error) {
		at, err := v.c.m.resolve(path, true)
		switch {
		case err != nil:
			return win32.FreeSpace{}, err
		case at.share != nil:
			return at.share.space(), nil
		case !at.node.dir:
			return win32.FreeSpace{}, win32.ErrorDirectory
		}
		total, free := at.node.fs.space()
		return win32.FreeSpace{Available: uint64(free), Total: uint64(total), Free: uint64(free)}, nil
	})
}

// Format implements win32.Volumes.
func (v volumeCalls) Format(ctx context.Context, name string, request win32.FormatRequest) error {
	call := v.call("Volumes.Format", name)
	call.Changes = true
	return do(ctx, v.c, call, func() error {
		volume, err := v.c.m.volume(name)
		if err != nil {
			return err
		}
		return v.c.m.format(volume, request)
	})
}

// format is MSFT_Volume.Format, of a volume that WMI lists. It overwrites
// an existing filesystem, even if programs use it.
func (m *Machine) format(v *volume, request win32.FormatRequest) error {
	switch {
	case time.Now().Before(v.arrives.Add(m.options.ListDelay)):
		return win32.ErrorNotFound
	case !v.disk.online():
		return win32.StorageDiskOffline
	case v.disk.readOnly():
		return win32.StorageDriveReadOnly
	case v.lock != nil || v.disk.system:
		return win32.StorageAccessDenied
	}
	start := v.partition.Offset
	old := v.filesystem()
	switch {
	case old != nil && time.Now().Before(old.shows): // the new filesystem is still empty
	case old != nil:
		m.lose("volume %s: its %s was formatted", v.name, old.kind)
	case !v.disk.data.blank(start, start+v.partition.Length):
		m.lose("volume %s: data was formatted", v.name)
	}
	if err := v.disk.makeFilesystem(v.partition, request); err != nil {
		return err
	}
	if old != nil {
		old.dismount()
		old.volume = nil
	}
	v.filesystem().volume, v.filesystem().shows = v, time.Now().Add(m.options.FormatDelay)
	return nil
}

// PathNames implements win32.Volumes.
func (v volumeCalls) PathNames(name string) ([]string, error) {
	return invoke(context.Background(), v.c, v.call("Volumes.PathNames", name), func() ([]string, error) {
		volume, err := v.c.m.volume(name)
		if err != nil {
			return nil, err
		}
		return v.c.m.pathNames(volume), nil
	})
}

// pathNames are where a volume is: its drive letter, and its mounted folders that
// have a path themselves.
func (m *Machine) pathNames(v *volume) []string {
	var names []string
	if v.letter != 0 {
		names = append(names, string(v.letter)+`:\`)
	}
	for _, n := range m.mountedFolders(v) {
		if path, ok := m.path(n); ok {
			names = append(names, path+`\`)
		}
	}
	return names
}
