package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/blockdev"
)

// fileBackend is a backend.Node of plain files and real loop devices, with all
// the optional halves. Like a real one it keeps nothing but the files and the
// marks; what is attached it asks the kernel.
type fileBackend struct {
	dir     string
	discard bool

	mu         sync.Mutex
	marks      map[string]backend.FormatMark
	ephemerals map[string]backend.EphemeralVolume
	size       int64 // of inline volumes
	createErr  error // returned by CreateEphemeral
	spec       backend.EphemeralSpec
}

func newFileBackend(t testing.TB, dir string) *fileBackend {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &fileBackend{dir: dir, discard: true, size: 64 << 20,
		marks: map[string]backend.FormatMark{}, ephemerals: map[string]backend.EphemeralVolume{}}
}

// add makes a blank volume.
func (b *fileBackend) add(t testing.TB, id string, size int64) {
	t.Helper()
	if err := b.create(id, size); err != nil {
		t.Fatal(err)
	}
}

func (b *fileBackend) create(id string, size int64) error {
	if err := os.MkdirAll(filepath.Join(b.dir, id), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(b.path(id), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(size), file.Close())
}

func (b *fileBackend) path(id string) string { return filepath.Join(b.dir, id, "data") }

func (b *fileBackend) mark(id string) backend.FormatMark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.marks[id]
}

func (b *fileBackend) open(id string) (*os.File, error) {
	file, err := os.OpenFile(b.path(id), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("volume %s: %w", id, backend.ErrNotFound)
	}
	return file, err
}

func (b *fileBackend) NodeInfo(context.Context) (backend.NodeInfo, error) {
	return backend.NodeInfo{ID: "node"}, nil
}

func (b *fileBackend) loops(id string) ([]blockdev.Loop, error) {
	file, err := b.open(id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closeQuietly(file)
	return blockdev.LoopsOf(file)
}

func (b *fileBackend) OpenDevice(ctx context.Context, r backend.DeviceRequest) (*backend.Device, error) {
	file, err := b.open(r.VolumeID)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(file)
	loops, err := blockdev.LoopsOf(file)
	if err != nil {
		return nil, err
	}
	for i := range loops {
		if loops[i].ReadOnly != r.ReadOnly || (r.Keep && loops[i].AutoClear) {
			continue
		}
		if err := loops[i].Open(); err == nil {
			return device(&loops[i]), nil
		}
	}
	loop, err := blockdev.AttachLoop(ctx, blockdev.LoopConfig{File: file, Path: file.Name(),
		ReadOnly: r.ReadOnly, AutoClear: !r.Keep, DirectIO: true, Discard: b.discard})
	if err != nil {
		return nil, err
	}
	return device(loop), nil
}

func device(loop *blockdev.Loop) *backend.Device {
	return &backend.Device{Path: loop.Path, Number: loop.Number, Size: loop.Size, SectorSize: loop.SectorSize,
		ReadOnly: loop.ReadOnly, Discard: loop.Discard, Close: loop.Close}
}

func (b *fileBackend) Devices(_ context.Context, id string) ([]backend.Device, error) {
	loops, err := b.loops(id)
	if err != nil {
		return nil, err
	}
	var devices []backend.Device
	for i := range loops {
		found := *device(&loops[i])
		found.Close = nil
		devices = append(devices, found)
	}
	return devices, nil
}

func (b *fileBackend) ResizeDevice(_ context.Context, id string) (int64, error) {
	loops, err := b.loops(id)
	if err != nil || len(loops) == 0 {
		return 0, err
	}
	var size int64
	for i := range loops {
		if size, err = loops[i].SetCapacity(); err != nil {
			return 0, err
		}
	}
	return size, nil
}

func (b *fileBackend) CloseDevice(_ context.Context, id string) error {
	loops, err := b.loops(id)
	if err != nil {
		return err
	}
	for i := range loops {
		if err := loops[i].Detach(); err != nil {
			return err
		}
	}
	return nil
}

func (b *fileBackend) FormatMark(_ context.Context, id string) (backend.FormatMark, error) {
	return b.mark(id), nil
}

func (b *fileBackend) SetFormatMark(_ context.Context, id string, mark backend.FormatMark) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks[id] = mark
	return nil
}

func (b *fileBackend) CreateEphemeral(_ context.Context, spec backend.EphemeralSpec) (backend.EphemeralVolume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.createErr != nil {
		return backend.EphemeralVolume{}, b.createErr
	}
	b.spec = spec
	if volume, ok := b.ephemerals[spec.Handle]; ok {
		return volume, nil
	}
	id := "eph-" + strings.TrimPrefix(spec.Handle, "csi-")[:32]
	if err := b.create(id, b.size); err != nil {
		return backend.EphemeralVolume{}, err
	}
	volume := backend.EphemeralVolume{VolumeID: id, Handle: spec.Handle, Target: spec.Target, Size: b.size}
	b.ephemerals[spec.Handle] = volume
	return volume, nil
}

func (b *fileBackend) EphemeralByHandle(_ context.Context, handle string) (backend.EphemeralVolume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	volume, ok := b.ephemerals[handle]
	if !ok {
		return volume, fmt.Errorf("inline volume %s: %w", handle, backend.ErrNotFound)
	}
	return volume, nil
}

func (b *fileBackend) DeleteEphemeral(_ context.Context, handle string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	volume, ok := b.ephemerals[handle]
	if !ok {
		return nil
	}
	delete(b.ephemerals, handle)
	delete(b.marks, volume.VolumeID)
	return os.RemoveAll(filepath.Join(b.dir, volume.VolumeID))
}

func (b *fileBackend) Ephemerals(context.Context) ([]backend.EphemeralVolume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []backend.EphemeralVolume
	for _, volume := range b.ephemerals {
		all = append(all, volume)
	}
	return all, nil
}
