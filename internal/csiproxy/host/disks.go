package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// disks is api.Disks.
type disks struct{ *Host }

// rescanLimit bounds a rescan of all buses.
const rescanLimit = 2 * time.Minute

func diskKey(number uint32) string { return fmt.Sprintf("disk %d", number) }

// withDisk opens a disk for the time of do.
func withDisk[T any](h *Host, number uint32, access win32.Access, do func(win32.Device) (T, error)) (T, error) {
	device, err := h.machine.Devices.OpenDisk(number, access)
	if err != nil {
		var none T
		return none, failed(err, "open disk %d", number)
	}
	defer h.close(device, diskKey(number))
	value, err := do(device)
	return value, during(err, "disk %d", number)
}

// withExpected is withDisk for the disk of an identity. It compares the identity on the
// open handle: before, Windows may give the disk's number to another disk; after, the
// handle reaches this disk only.
func withExpected[T any](
	h *Host, number uint32, expected api.Identity, access win32.Access, do func(win32.Device) (T, error),
) (T, error) {
	if expected == (api.Identity{}) {
		return withDisk(h, number, access, do)
	}
	return withDisk(h, number, access, func(device win32.Device) (T, error) {
		if disk := h.describe(device, number); !expected.IsOf(disk) {
			var none T
			return none, errors.Join(fmt.Errorf("%w: it has serial number %q and identifier %q; expected are %q and %q; "+
				"it was not changed: find the disk again, since numbers change",
				backend.ErrUnavailable, disk.SerialNumber, disk.Page83, expected.SerialNumber, expected.Page83), disk.Problem)
		}
		return do(device)
	})
}

func (h *Host) close(device win32.Device, what string) {
	if err := device.Close(); err != nil {
		h.logger.Warn("a device is not closed", "device", what, "error", err)
	}
}

// question runs a query on one disk.
func question[T any](ctx context.Context, h *Host, number uint32, do func(win32.Device) (T, error)) (T, error) {
	return ask(ctx, h.tasks, diskKey(number), func(context.Context) (T, error) {
		return withDisk(h, number, win32.Query, do)
	})
}

// List asks all disks at the same time. A disk that does not answer is listed with
// that error as its Problem.
func (d disks) List(ctx context.Context) ([]api.Disk, error) {
	interfaces, err := ask(ctx, d.tasks, "the list of disks", func(context.Context) ([]string, error) {
		return d.machine.Devices.Interfaces()
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	var found []api.Disk
	if err != nil || len(interfaces) == 0 {
		d.logger.Warn("Windows lists no interfaces of disks; their names are listed instead", "error", err)
		if found, err = d.byNumber(ctx); err != nil {
			return nil, fmt.Errorf("list disks: %w", err)
		}
	} else {
		found = d.byInterface(ctx, interfaces)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("list disks: %w", context.Cause(ctx))
	}
	return unify(found), nil
}

// each calls do for all things at the same time and collects the results that are ok.
func each[K, V any](things []K, do func(K) (V, bool)) []V {
	var (
		mu    sync.Mutex
		found []V
		all   sync.WaitGroup
	)
	for _, thing := range things {
		all.Go(func() {
			value, ok := do(thing)
			if !ok {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, value)
		})
	}
	all.Wait()
	return found
}

func (d disks) byNumber(ctx context.Context) ([]api.Disk, error) {
	numbers, err := ask(ctx, d.tasks, "the names of disks", func(context.Context) ([]uint32, error) {
		return d.machine.Devices.Numbers()
	})
	if err != nil {
		return nil, failed(err, "list the names of disks")
	}
	return each(numbers, func(number uint32) (api.Disk, bool) {
		disk, err := askBounded(ctx, d.tasks, diskKey(number), func(context.Context) (api.Disk, error) {
			return withDisk(d.Host, number, win32.Query, func(device win32.Device) (api.Disk, error) {
				return d.describe(device, number), nil
			})
		})
		if err != nil {
			disk = api.Disk{Number: number, Problem: err}
		}
		return disk, !errors.Is(err, backend.ErrNotFound)
	}), nil
}

func (d disks) byInterface(ctx context.Context, interfaces []string) []api.Disk {
	d.numbers.keep(interfaces)
	return each(interfaces, func(path string) (api.Disk, bool) {
		disk, err := askBounded(ctx, d.tasks, "disk "+path, func(context.Context) (api.Disk, error) {
			device, err := d.machine.Devices.OpenInterface(path, win32.Query)
			if err != nil {
				return api.Disk{}, failed(err, "open disk %s", path)
			}
			defer d.close(device, path)
			number, err := answer(device, win32.IoctlStorageGetDeviceNumber, nil, win32.DecodeDeviceNumber)
			if err != nil {
				return api.Disk{}, err
			}
			d.numbers.learn(path, number.Number)
			return d.describe(device, number.Number), nil
		})
		if err == nil {
			return disk, true
		}
		if errors.Is(err, backend.ErrNotFound) && d.isGone(ctx, path) {
			return api.Disk{}, false
		}
		number, known := d.numbers.of(path)
		if !known {
			number = api.UnknownNumber
		}
		d.logger.Warn("a disk cannot be read", "disk", path, "number", number, "error", err)
		return api.Disk{Number: number, Problem: err}, true
	})
}

// isGone reports whether Windows no longer lists an interface. The error of an open
// or a control call does not prove it: a disk that fails may answer not found.
func (d disks) isGone(ctx context.Context, path string) bool {
	interfaces, err := ask(ctx, d.tasks, "the list of disks", func(context.Context) ([]string, error) {
		return d.machine.Devices.Interfaces()
	})
	return err == nil && !slices.Contains(interfaces, path)
}

// Rescan searches all buses for disks, then reads the size of each again.
func (d disks) Rescan(ctx context.Context) error {
	return d.rescans.do(ctx, d.rescan) // the rescan is shared, and outlives its first caller
}

func (d disks) rescan() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), rescanLimit,
		fmt.Errorf("%w: the rescan of all buses took longer than %s", backend.ErrUnavailable, rescanLimit))
	defer cancel()
	reenumerate := func(context.Context) error { return d.machine.Devices.Reenumerate() }
	if _, err := ask(ctx, d.tasks, "all buses", noResult(reenumerate)); err != nil {
		return failed(err, "rescan")
	}
	found, err := d.List(ctx)
	if err != nil {
		return err
	}
	each(found, func(disk api.Disk) (struct{}, bool) {
		if disk.Number == api.UnknownNumber {
			return struct{}{}, false // List has logged it
		}
		_, err := askBounded(ctx, d.tasks, diskKey(disk.Number), func(context.Context) (struct{}, error) {
			return withDisk(d.Host, disk.Number, win32.ReadWrite, noResult(func(device win32.Device) error {
				return control(device, win32.IoctlDiskUpdateProperties, nil)
			}))
		})
		if err != nil {
			d.logger.Warn("the size of a disk was not read", "disk", disk.Number, "error", err)
		}
		return struct{}{}, false
	})
	return nil
}

// Size returns the size that the disk reports; its partition table may be older.
func (d disks) Size(ctx context.Context, disk uint32) (int64, error) {
	geometry, err := question(ctx, d.Host, disk, geometryOf)
	return geometry.DiskSize, err
}

// Online reads the disk's attributes.
func (d disks) Online(ctx context.Context, disk uint32) (bool, error) {
	attributes, err := question(ctx, d.Host, disk, attributesOf)
	return err == nil && attributes.Attributes&win32.DiskAttributeOffline == 0, err
}
