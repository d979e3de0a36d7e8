package windows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// fake is a Windows machine with no more than what the contract of package api
// says, held in memory. Paths are compared as they are written.
type fake struct {
	mu    sync.Mutex
	disks map[uint32]*fakeDisk
	tree  map[string]*entry // by path
	// away is why the machine cannot be reached; nil when it can.
	away    error
	rescans int
	// appear are the disks that the next rescan finds.
	appear []*fakeDisk
}

type fakeDisk struct {
	api.Disk
	content string // "" blank, "partitioned", or what others put there
	volume  string
	fs      string
	fsSize  int64
	known   int64 // size that Windows knows until a rescan
	formats int
	// contested: another disk answered its number too, so that the list has neither's.
	contested bool
}

// entry is a directory, a link or a mounted folder.
type entry struct {
	link   string // the target
	volume string // the mounted volume
}

const (
	kubeletDir = `C:\var\lib\kubelet`
	mebibyte   = 1 << 20
)

func newFake() *fake {
	return &fake{disks: map[uint32]*fakeDisk{}, tree: map[string]*entry{kubeletDir: {}}}
}

func (f *fake) api() api.Host { return api.Host{Filesystem: f, Disks: f, Volumes: fakeVolumes{f}} }

// add attaches a disk, offline and read-only as SAN policy has it.
func (f *fake) add(serial string, size int64) *fakeDisk {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := uint32(1)
	for f.disks[number] != nil {
		number++
	}
	d := &fakeDisk{Disk: api.Disk{Number: number, SerialNumber: serial, Size: size, ReadOnly: true}, known: size}
	f.disks[number] = d
	return d
}

func (f *fake) detach(d *fakeDisk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.disks, d.Number)
}

// API: disks.

func (f *fake) List(context.Context) ([]api.Disk, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []api.Disk
	for _, d := range f.disks {
		one := d.Disk
		one.Size = d.known
		if d.contested {
			one.Number, one.Problem = api.UnknownNumber, fmt.Errorf("%w: its number is contested", backend.ErrUnavailable)
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b api.Disk) int { return int(a.Number) - int(b.Number) })
	return list, f.away
}

func (f *fake) Rescan(context.Context) error {
	f.mu.Lock()
	f.rescans++
	for _, d := range f.disks {
		d.known = d.Size
	}
	appear := f.appear
	f.appear = nil
	f.mu.Unlock()
	for _, d := range appear {
		f.add(d.SerialNumber, d.Size)
	}
	return f.away
}

func (f *fake) disk(number uint32) (*fakeDisk, error) {
	if d := f.disks[number]; d != nil {
		return d, f.away
	}
	return nil, fmt.Errorf("disk %d: %w", number, backend.ErrNotFound)
}

func (f *fake) Partition(_ context.Context, number uint32, _ api.Identity) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(number)
	if err != nil {
		return "", err
	}
	switch d.content {
	case "":
		d.content, d.Online, d.ReadOnly = "partitioned", true, false
		d.volume = fmt.Sprintf(`\\?\Volume{00000000-0000-0000-0000-%012d}\`, len(f.tree)*1000+int(number))
		d.fsSize = d.known
	case "partitioned", "no data volume":
	default:
		return "", fmt.Errorf("%w: the disk has %s", backend.ErrPrecondition, d.content)
	}
	return d.volume, nil
}

func (f *fake) Size(_ context.Context, number uint32) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(number)
	if err != nil {
		return 0, err
	}
	return d.known, nil
}

func (f *fake) Online(_ context.Context, number uint32) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(number)
	return err == nil && d.Online, err
}

func (f *fake) SetOnline(_ context.Context, number uint32, _ api.Identity, online bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(number)
	if err != nil {
		return err
	}
	d.Online, d.ReadOnly = online, d.ReadOnly && !online
	return nil
}

// API: filesystem.

func (f *fake) PathExists(_ context.Context, path string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tree[path] != nil, f.away
}

func (f *fake) Mkdir(_ context.Context, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; strings.HasPrefix(path, kubeletDir); path = parent(path) {
		if f.tree[path] == nil {
			f.tree[path] = &entry{}
		}
	}
	return f.away
}

func (f *fake) Rmdir(_ context.Context, path string, force bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.tree[path]
	switch {
	case force:
		panic("the engine never forces a removal")
	case e == nil:
		return fmt.Errorf("%s: %w", path, backend.ErrNotFound)
	case e.link == "" && e.volume == "":
		for other := range f.tree {
			if strings.HasPrefix(other, path+`\`) {
				return fmt.Errorf("%w: %s is not empty", backend.ErrPrecondition, path)
			}
		}
	}
	delete(f.tree, path)
	return f.away
}

func (f *fake) RmdirContents(context.Context, string) error { panic("not for a node") }

func (f *fake) Link(_ context.Context, source, link string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.tree[link]
	switch {
	case f.tree[source] == nil:
		return fmt.Errorf("%w: %s is not a directory", backend.ErrPrecondition, source)
	case e != nil && e.link == source:
		return nil
	case e != nil:
		return fmt.Errorf("%s: %w", link, backend.ErrExists)
	}
	f.tree[link] = &entry{link: source}
	return f.away
}

func (f *fake) IsLink(_ context.Context, path string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.tree[path]
	if e == nil {
		return false, fmt.Errorf("%s: %w", path, backend.ErrNotFound)
	}
	return e.volume != "" || e.link != "" && f.tree[e.link] != nil, f.away
}

// fakeVolumes are apart since some names of their methods are the disks', too.
type fakeVolumes struct{ *fake }

func (v fakeVolumes) volume(id string) (*fakeDisk, error) {
	for _, d := range v.disks {
		if sameVolume(d.volume, id) {
			if !d.Online {
				return nil, fmt.Errorf("%w: disk %d is offline", backend.ErrPrecondition, d.Number)
			}
			return d, v.away
		}
	}
	return nil, fmt.Errorf("%s: %w", id, backend.ErrNotFound)
}

func (v fakeVolumes) OnDisk(context.Context, uint32, uint32) ([]string, error) {
	panic("Partition returns the volume")
}

func (v fakeVolumes) FileSystem(_ context.Context, id string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d, err := v.volume(id)
	if err != nil {
		return "", err
	}
	return d.fs, nil
}

func (v fakeVolumes) Format(_ context.Context, id, fileSystem string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	d, err := v.volume(id)
	if err != nil {
		return err
	}
	if d.fs != "" {
		return fmt.Errorf("%w: it has %s", backend.ErrPrecondition, d.fs)
	}
	d.fs, d.formats = fileSystem, d.formats+1
	return nil
}

func (v fakeVolumes) Mount(_ context.Context, id, path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := v.volume(id); err != nil {
		return err
	}
	e := v.tree[path]
	switch {
	case e == nil:
		return fmt.Errorf("%s: %w", path, backend.ErrNotFound)
	case sameVolume(e.volume, id):
		return nil
	case e.volume != "" || e.link != "":
		return fmt.Errorf("%w: %s is taken", backend.ErrPrecondition, path)
	}
	e.volume = id
	return nil
}

func (v fakeVolumes) Unmount(_ context.Context, id, path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.tree[path]
	if e == nil || e.volume == "" {
		return v.away
	}
	if !sameVolume(e.volume, id) {
		return fmt.Errorf("%w: %s is mounted there", backend.ErrPrecondition, e.volume)
	}
	e.volume = ""
	return nil
}

func (v fakeVolumes) Resize(_ context.Context, id string, size int64) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d, err := v.volume(id)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		size = d.known
	}
	d.fsSize = max(d.fsSize, min(size, d.known))
	return d.fsSize, nil
}

func (v fakeVolumes) Stats(_ context.Context, id string) (api.VolumeStats, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d, err := v.volume(id)
	if err != nil {
		return api.VolumeStats{}, err
	}
	return api.VolumeStats{Total: d.fsSize, Used: 5}, nil
}

func (v fakeVolumes) DiskOf(_ context.Context, id string) (uint32, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.disks {
		if sameVolume(d.volume, id) {
			return d.Number, v.away
		}
	}
	return 0, fmt.Errorf("%s: %w", id, backend.ErrNotFound)
}

func (v fakeVolumes) At(_ context.Context, path string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.tree[path]
	if e != nil && e.link != "" {
		e = v.tree[e.link]
	}
	if v.away != nil {
		return "", v.away
	}
	if e == nil || e.volume == "" {
		return "", fmt.Errorf("%w: no volume at %s, because it does not exist or is not mounted", backend.ErrNotFound, path)
	}
	return e.volume, nil
}

func (v fakeVolumes) Closest(context.Context, string) (string, error) { panic("not for a node") }
func (v fakeVolumes) Flush(context.Context, string) error             { return nil }
