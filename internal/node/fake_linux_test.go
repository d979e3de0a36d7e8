package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/test/corpus"
)

// fileBackend is a backend.Node of plain files and real loop devices, with all
// the optional halves. Like a real one it keeps marks and inline volumes in a
// file, for the next process to find; it reads attached devices from the kernel.
type fileBackend struct {
	dir       string
	discard   bool
	size      int64 // of inline volumes
	createErr error // returned by CreateEphemeral
	lookupErr error // returned by EphemeralByHandle for a volume that exists
	failed    bool  // lookupErr is final: the storage of the volume failed
	// forgetful: it does not know the written extents, like a whole disk.
	forgetful bool
	problems  []backend.HealthProblem
	listed    []backend.NodeVolume // by NodeVolumes, with their devices

	mu   sync.Mutex
	spec backend.EphemeralSpec // of the last CreateEphemeral
}

// fileState is what fileBackend keeps.
type fileState struct {
	Marks      map[string]backend.FormatMark
	Ephemerals map[string]backend.EphemeralVolume
}

func newFileBackend(t testing.TB, dir string) *fileBackend {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &fileBackend{dir: dir, discard: true, size: 64 << 20}
}

// change reads the state, lets do change it, and writes it back.
func (b *fileBackend) change(do func(*fileState) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := fileState{Marks: map[string]backend.FormatMark{}, Ephemerals: map[string]backend.EphemeralVolume{}}
	path := filepath.Join(b.dir, "state.json")
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &state)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = do(&state)
	}
	if err != nil {
		return err
	}
	if data, err = json.Marshal(state); err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
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

func (b *fileBackend) mark(t testing.TB, id string) backend.FormatMark {
	t.Helper()
	mark, err := b.FormatMark(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return mark
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
		if r.Keep && loops[i].AutoClear {
			continue
		}
		if err := loops[i].Open(); err != nil {
			continue
		}
		if err := loops[i].SetReadOnly(r.ReadOnly); err != nil {
			return nil, errors.Join(err, loops[i].Close())
		}
		return device(&loops[i]), nil
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

func (b *fileBackend) FormatMark(_ context.Context, id string) (mark backend.FormatMark, err error) {
	err = b.change(func(s *fileState) error { mark = s.Marks[id]; return nil })
	return mark, err
}

func (b *fileBackend) SetFormatMark(_ context.Context, id string, mark backend.FormatMark) error {
	return b.change(func(s *fileState) error { s.Marks[id] = mark; return nil })
}

// WrittenRanges asks the filesystem that the file is in.
func (b *fileBackend) WrittenRanges(_ context.Context, id string, visit func(offset, length int64) error) error {
	if b.forgetful {
		return backend.ErrUnsupported
	}
	file, err := b.open(id)
	if err != nil {
		return err
	}
	defer closeQuietly(file)
	return corpus.Written(file)(visit)
}

func (b *fileBackend) CreateEphemeral(
	_ context.Context, spec backend.EphemeralSpec) (volume backend.EphemeralVolume, err error,
) {
	if b.createErr != nil {
		return volume, b.createErr
	}
	id := "eph-" + strings.TrimPrefix(spec.Handle, "csi-")[:32]
	err = b.change(func(s *fileState) error {
		b.spec = spec
		if known, ok := s.Ephemerals[spec.Handle]; ok {
			volume = known
			return nil
		}
		volume = backend.EphemeralVolume{VolumeID: id, Handle: spec.Handle, Target: spec.Target, Size: b.size}
		s.Ephemerals[spec.Handle] = volume
		return nil
	})
	if err == nil {
		err = b.create(id, b.size) // the intent is recorded
	}
	return volume, err
}

func (b *fileBackend) EphemeralByHandle(_ context.Context, handle string) (volume backend.EphemeralVolume, err error) {
	err = b.change(func(s *fileState) error {
		known, ok := s.Ephemerals[handle]
		if !ok {
			return fmt.Errorf("inline volume %s: %w", handle, backend.ErrNotFound)
		}
		volume = known
		return nil
	})
	switch {
	case err != nil || b.lookupErr == nil:
		return volume, err
	case b.failed:
		return backend.EphemeralVolume{VolumeID: volume.VolumeID, Handle: handle}, b.lookupErr
	}
	return backend.EphemeralVolume{}, b.lookupErr
}

func (b *fileBackend) DeleteEphemeral(_ context.Context, handle string) error {
	return b.change(func(s *fileState) error {
		volume, ok := s.Ephemerals[handle]
		if !ok {
			return nil
		}
		delete(s.Ephemerals, handle)
		delete(s.Marks, volume.VolumeID)
		return os.RemoveAll(filepath.Join(b.dir, volume.VolumeID))
	})
}

func (b *fileBackend) Ephemerals(context.Context) (all []backend.EphemeralVolume, err error) {
	err = b.change(func(s *fileState) error {
		for _, volume := range s.Ephemerals {
			all = append(all, volume)
		}
		return nil
	})
	return all, err
}

func (b *fileBackend) NodeVolumeHealth(context.Context, string) ([]backend.HealthProblem, error) {
	return b.problems, nil
}

func (b *fileBackend) StorageHealth(context.Context) ([]backend.HealthProblem, error) {
	return b.problems, nil
}

func (b *fileBackend) NodeVolumes(ctx context.Context) (volumes []backend.NodeVolume, err error) {
	for _, volume := range b.listed {
		if volume.Devices, err = b.Devices(ctx, volume.ID); err != nil {
			return nil, err
		}
		volumes = append(volumes, volume)
	}
	return volumes, nil
}
