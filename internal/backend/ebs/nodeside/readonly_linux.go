package nodeside

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/blockdev"
)

// openReadOnly gives a read-only device over the volume's own. A disk is either
// writable or not for everybody; a loop device over it keeps one user from
// writing while another does. It takes over the file.
func openReadOnly(ctx context.Context, w wish, below *backend.Device, file *os.File) (*backend.Device, error) {
	loop, err := readOnlyLoop(ctx, w, below, file)
	if err != nil {
		return nil, fmt.Errorf("make a read-only device over %s: %w", below.Path, err)
	}
	device := loopDevice(loop)
	device.Close = func() error { return errors.Join(loop.Close(), file.Close()) }
	return &device, nil
}

// readOnlyLoop takes the one that is there, if it stays as long as is wanted.
func readOnlyLoop(ctx context.Context, w wish, below *backend.Device, file *os.File) (*blockdev.Loop, error) {
	loops, err := blockdev.LoopsOf(file)
	if err != nil {
		return nil, err
	}
	for i := range loops {
		if loops[i].AutoClear && w.keep {
			continue
		}
		err := loops[i].Open()
		if errors.Is(err, backend.ErrNotFound) {
			continue
		}
		return &loops[i], err
	}
	return blockdev.AttachLoop(ctx, blockdev.LoopConfig{
		File: file, Path: below.Path, ReadOnly: true, AutoClear: !w.keep, DirectIO: true, SectorSize: below.SectorSize,
	})
}

func loopDevice(l *blockdev.Loop) backend.Device {
	return backend.Device{Path: l.Path, Number: l.Number, Size: l.Size, SectorSize: l.SectorSize, ReadOnly: l.ReadOnly}
}
