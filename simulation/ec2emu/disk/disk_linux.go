package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const (
	volumesDir   = "volumes"
	snapshotsDir = "snapshots"
	instancesDir = "instances"
	recordFile   = "devices.json"
)

var _ world.Devices = (*Disks)(nil)

// validID is what may become part of a path.
var validID = regexp.MustCompile(`^(vol|snap|i)-[0-9a-f]{8,17}$`)

// Disks is the data and devices below a directory. It is for one caller at a
// time, as the world is.
type Disks struct {
	dir      string
	root     *os.Root
	loops    map[string]*blockdev.Loop   // by volume, attached by us and held
	guests   map[string]map[string]guest // by instance, by volume
	recorded []string                    // volumes that may have a loop device
}

// guest is how an instance sees a volume.
type guest struct {
	name  string // nvme1n1, xvdba
	index int    // of the NVMe controller
	xen   bool
}

// Open takes over a directory, which it makes if it is missing, and frees the
// devices that an earlier process left in it and that are not in use.
func Open(dir string) (world.Devices, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	d := &Disks{dir: dir, root: root, loops: map[string]*blockdev.Loop{}, guests: map[string]map[string]guest{}}
	if err := d.takeOver(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), root.Close())
	}
	return d, nil
}

func (d *Disks) takeOver() error {
	for _, name := range []string{volumesDir, snapshotsDir} {
		if err := durable.Mkdir(d.root, name, 0o700); err != nil {
			return err
		}
	}
	if err := d.root.RemoveAll(instancesDir); err != nil {
		return err
	}
	if err := durable.Mkdir(d.root, instancesDir, 0o755); err != nil {
		return err
	}
	data, err := d.root.ReadFile(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &d.recorded); err != nil {
		return fmt.Errorf("%s is damaged: %w", recordFile, err)
	}
	return d.freeRecorded()
}

// freeRecorded frees the recorded loop devices that neither this process nor
// another uses; the others stay recorded.
func (d *Disks) freeRecorded() error {
	for _, id := range slices.Clone(d.recorded) {
		if d.loops[id] != nil {
			continue
		}
		inUse, err := d.freeLoops(id)
		if err != nil {
			return err
		}
		if !inUse {
			if err := d.forget(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// remember records that the volume is about to have a loop device.
func (d *Disks) remember(id string) error {
	if slices.Contains(d.recorded, id) {
		return nil
	}
	d.recorded = append(d.recorded, id)
	return d.saveRecord()
}

func (d *Disks) forget(id string) error {
	d.recorded = slices.DeleteFunc(d.recorded, func(other string) bool { return other == id })
	return d.saveRecord()
}

func (d *Disks) saveRecord() error {
	data, err := json.Marshal(d.recorded)
	if err != nil {
		return err
	}
	return durable.WriteFile(d.root, recordFile, data, 0o600)
}

// Close detaches all devices. Those that are in use stay until their last user
// closes them, and are named in the error.
func (d *Disks) Close() error {
	var all []error
	for id, guests := range d.guests {
		for volumeID := range guests {
			all = append(all, d.hide(id, volumeID))
		}
	}
	for id := range d.loops {
		all = append(all, d.release(id))
	}
	if len(d.recorded) > 0 {
		all = append(all, d.freeRecorded())
	}
	for _, id := range d.recorded {
		all = append(all, fmt.Errorf("the device of %s is still in use; unmount it", id))
	}
	return errors.Join(append(all, d.root.Close())...)
}

func check(id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("%q is not an ID", id)
	}
	return nil
}

func volumeFile(id string) string   { return filepath.Join(volumesDir, id+".img") }
func snapshotFile(id string) string { return filepath.Join(snapshotsDir, id+".img") }
