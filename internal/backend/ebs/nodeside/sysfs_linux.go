package nodeside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// nvmeDisk matches an NVMe namespace that has a device node. The paths of a multipath
// namespace (nvme0c1n1) have none.
var nvmeDisk = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)

// disk is a disk of this machine, from sysfs.
type disk struct {
	name          string // below /sys/block and /dev
	number        uint64 // st_rdev of its node
	serial, model string // NVMe only
	transport     string // NVMe only: pcie, or that and others; "" if the kernel has none
	namespace     string // NVMe only: nsid
	xen           bool
	slot          slot // Xen only
}

// sysfs reads block devices below a root.
type sysfs struct{ root string }

func (s sysfs) path(elements ...string) string {
	return filepath.Join(append([]string{s.root, "block"}, elements...)...)
}

// attribute reads a value; "" if the device has none, or disappears.
func (s sysfs) attribute(elements ...string) (string, error) {
	data, err := os.ReadFile(s.path(elements...))
	if gone(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read sysfs: %w", err)
	}
	return unpadded(string(data)), nil
}

// gone reports whether a device, or a value of it, no longer exists.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) ||
		errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EINVAL)
}

// disks lists the disks whose names match, by read. It omits a disk that disappears
// meanwhile.
func (s sysfs) disks(match *regexp.Regexp, read func(name string) (*disk, error)) ([]disk, error) {
	entries, err := os.ReadDir(s.path())
	if err != nil {
		return nil, fmt.Errorf("list the disks of this machine: %w", err)
	}
	var disks []disk
	for _, entry := range entries {
		if !match.MatchString(entry.Name()) {
			continue
		}
		d, err := read(entry.Name())
		if err != nil {
			return nil, err
		}
		if d != nil {
			disks = append(disks, *d)
		}
	}
	return disks, nil
}

// nvmeDisks lists the NVMe disks.
func (s sysfs) nvmeDisks() ([]disk, error) { return s.disks(nvmeDisk, s.nvme) }

// nvme reads a disk; nil if it does not exist, or not completely.
func (s sysfs) nvme(name string) (*disk, error) {
	d := disk{name: name}
	for _, a := range []struct {
		value *string
		path  []string
	}{
		{&d.serial, []string{name, "device", "serial"}},
		{&d.model, []string{name, "device", "model"}},
		{&d.namespace, []string{name, "nsid"}},
	} {
		var err error
		if *a.value, err = s.attribute(a.path...); err != nil {
			return nil, err
		}
	}
	var err error
	if d.transport, err = s.transport(name); err != nil {
		return nil, err
	}
	number, err := s.number(name)
	if err != nil || number == 0 || d.serial == "" {
		return nil, err
	}
	d.number = number
	return &d, nil
}

// controller is the name of an NVMe controller.
var controller = regexp.MustCompile(`^nvme[0-9]+$`)

// transport returns the transport of a disk. If the kernel can reach the disk over
// several paths, its device is a subsystem with the controllers below it.
func (s sysfs) transport(name string) (string, error) {
	direct, err := s.attribute(name, "device", "transport")
	if direct != "" || err != nil {
		return direct, err
	}
	entries, err := os.ReadDir(s.path(name, "device"))
	if gone(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read sysfs: %w", err)
	}
	var all []string
	for _, entry := range entries {
		if !controller.MatchString(entry.Name()) {
			continue
		}
		one, err := s.attribute(name, "device", entry.Name(), "transport")
		if err != nil {
			return "", err
		}
		if one != "" && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return strings.Join(all, " and "), nil
}

// number is the number of a block device, 0 if it does not exist.
func (s sysfs) number(elements ...string) (uint64, error) {
	text, err := s.attribute(append(elements, "dev")...)
	if err != nil || text == "" {
		return 0, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(text, "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("device number %q of %s: %w", text, filepath.Join(elements...), err)
	}
	return unix.Mkdev(major, minor), nil
}

// partition is one partition of a disk.
type partition struct {
	name   string
	index  int // from 1
	number uint64
}

// partitions lists the partitions of a disk.
func (s sysfs) partitions(name string) ([]partition, error) {
	entries, err := os.ReadDir(s.path(name))
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", name, err)
	}
	var found []partition
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), name) {
			continue
		}
		text, err := s.attribute(name, entry.Name(), "partition")
		if err != nil {
			return nil, err
		}
		index, err := strconv.Atoi(text)
		if err != nil {
			continue // not a partition
		}
		number, err := s.number(name, entry.Name())
		if err != nil {
			return nil, err
		}
		if number != 0 {
			found = append(found, partition{name: entry.Name(), index: index, number: number})
		}
	}
	return found, nil
}

// withSerial finds the disk with a serial number; nil if there is none. Two are an error,
// because it is unknown which of them is the volume.
func (s sysfs) withSerial(serial, model string) (*disk, error) {
	disks, err := s.nvmeDisks()
	if err != nil {
		return nil, err
	}
	var found *disk
	for i, d := range disks {
		if d.serial != serial {
			continue
		}
		if err := d.accept(model); err != nil {
			return nil, err
		}
		if found != nil {
			return nil, fmt.Errorf("%w: both %s and %s have the serial number %s; detach one of them",
				backend.ErrPrecondition, found.name, d.name, serial)
		}
		found = &disks[i]
	}
	return found, nil
}

// accept rejects a disk that has a volume's serial number and is not an EBS volume,
// because a server that exports disks over a network chooses their serial numbers.
func (d disk) accept(model string) error {
	if model == AnyModel {
		return nil
	}
	if d.model != model {
		return fmt.Errorf("%w: disk %s has the serial number %s, but its model is %q and not %q",
			backend.ErrPrecondition, d.name, d.serial, d.model, model)
	}
	if d.transport != "" && d.transport != "pcie" {
		return fmt.Errorf("%w: disk %s has the serial number %s, but its transport is %s; EBS volumes are PCIe devices",
			backend.ErrPrecondition, d.name, d.serial, d.transport)
	}
	if d.namespace != "" && d.namespace != "1" {
		return fmt.Errorf("%w: disk %s has the serial number %s, but is namespace %s; an EBS volume has only namespace 1",
			backend.ErrPrecondition, d.name, d.serial, d.namespace)
	}
	return nil
}
